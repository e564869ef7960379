use std::fs;

use futures::stream;

use super::*;
use crate::{
    cli::tests::serve,
    testing::{block_on, capture},
};

/// Runs `serve` with `commands` as its input. Returns the output, the remarks and the exit code.
fn run_to_end(words: &[&str], commands: &[&str]) -> (Vec<String>, String, Exit) {
    let commands = stream::iter(commands.iter().map(|line| (*line).to_owned()));
    let (output, remarks, exit) =
        capture(|console| block_on(run(&serve(words), console, || Ok(commands), pending())));
    let printed = output.lines().map(str::to_owned).collect();
    (printed, remarks, exit.unwrap())
}

/// Creates a scenario file.
fn scenario(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("faults.txt");
    fs::write(&path, text).unwrap();
    (folder, path.display().to_string())
}

#[test]
fn the_connection_string_comes_first_and_each_command_is_answered() {
    let commands = [
        "kill 2",
        "# nothing to do",
        "",
        "status",
        "kill 2",
        "restrat 2",
        "net heal",
        "quit",
        "kill 1",
    ];
    let (printed, remarks, exit) = run_to_end(&["--spares", "1"], &commands);
    assert_eq!(exit, Exit::SUCCESS);
    let [uri, killed, status @ .., dead, unknown, network, end] = &*printed else {
        panic!("{printed:?}");
    };
    assert!(uri.starts_with("mongodb://127.0.0.1:"), "{uri}");
    assert!(uri.ends_with("/?replicaSet=rs0"), "{uri}");
    assert_eq!((&**killed, &**end), ("ok", "ok"));
    let [primary, _, down, spare, answered] = status else {
        panic!("{status:?}");
    };
    assert!(primary.contains(" primary term 1 counter "), "{primary}");
    assert!(down.starts_with("2 ") && down.contains(" down "), "{down}");
    assert!(spare.starts_with("3 "), "{spare}");
    assert_eq!(answered, "ok");
    assert_eq!(dead, "error: member 2 is not running");
    assert_eq!(unknown, "error: `restrat` is not an action: did you mean `restart`?");
    assert!(network.contains("no simulated network"), "{network}");
    // Check that the remarks announce every command.
    assert!(remarks.starts_with("note: commands on standard input: stepdown, "), "{remarks}");
    for verb in Command::verbs() {
        assert!(remarks.contains(verb), "{verb}: {remarks}");
    }
    assert!(remarks.lines().all(|line| line.len() <= 80), "{remarks}");
}

#[test]
fn the_lines_of_a_scenario_are_answered_with_the_place_of_an_error() {
    let (_folder, path) = scenario("kill 0\nkill 9\n0.01s net heal\n10ms restart 0\nquit\n");
    let (printed, _, exit) = run_to_end(&["--scenario", &path], &["status"]);
    assert_eq!(exit, Exit::SUCCESS);
    let network = "a served deployment has no simulated network: remove the `net` steps, or \
                   write a test with `sdam::sim`";
    assert_eq!(
        printed[1..],
        [
            "ok".to_owned(),
            format!("error: {path}:2: member 9 does not exist now"),
            format!("net heal: error: {path}:3: {network}"),
            "restart 0: ok".to_owned(),
            "ok".to_owned(),
        ]
    );
}

#[test]
fn commands_are_opened_after_the_scenario_which_may_be_standard_input_too() {
    for (text, expected) in [("nonsense\n", Exit::CONFIGURATION), ("quit\n", Exit::SUCCESS)] {
        let (_folder, path) = scenario(text);
        let early = || -> io::Result<stream::Empty<String>> { panic!("opened before {text}") };
        let (_, remarks, exit) = capture(|console| {
            block_on(run(&serve(&["--scenario", &path]), console, early, pending()))
        });
        assert_eq!(exit.unwrap(), expected, "{remarks}");
    }
}
