use std::fs;

use futures::stream;
use sdam_sim::action::Target;

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

fn parse(text: &str) -> Result<Script, Failure> {
    Script::parse("faults.txt".to_owned(), text)
}

#[test]
fn lines_have_their_own_time_or_follow_the_one_before() {
    let script = parse(
        "# The primary dies.\n\
         kill primary # at once\n\
         \n\
         sleep 2\n\
         heal\n\
         10s kill 1\n\
         12s status\n\
         500ms kill 2\n",
    );
    let script = script.unwrap();
    let kill = |target| Command::Step(Action::Kill(target).into());
    let lines = script.lines.iter();
    let found: Vec<_> = lines
        .map(|line| {
            let millis = line.at.as_millis();
            (line.number, millis, line.is_timed, line.command.clone())
        })
        .collect();
    assert_eq!(
        found,
        [
            (2, 0, false, kill(Target::Primary)),
            (4, 0, false, Command::Sleep(Duration::from_secs(2))),
            (8, 500, true, kill(2.into())),
            (5, 2000, false, Command::Step(Action::Heal.into())),
            (6, 10_000, true, kill(1.into())),
            (7, 12_000, true, Command::Status),
        ]
    );
}

#[test]
fn each_wrong_line_is_named_with_a_suggestion_or_the_syntax() {
    let check = |line: &str, expected: &str| {
        let text = format!("heal\n{line}\n\n{line}\n");
        let mut remarks = Vec::new();
        let exit = parse(&text).unwrap_err().report(&mut remarks).unwrap();
        assert_eq!(exit, Exit::CONFIGURATION);
        let expected =
            format!("error: faults.txt:2: {expected}\nerror: faults.txt:4: {expected}\n");
        assert_eq!(String::from_utf8(remarks).unwrap(), expected);
    };
    for (line, wrong, kind, right) in [
        ("kil primary", "kil", "an action", "kill"),
        ("1s restrat 0", "restrat", "an action", "restart"),
        ("5s net blackhol 1", "blackhol", "a fault of the network", "blackhole"),
        ("kill primay", "primay", "MEMBER", "primary"),
        ("slep 5", "slep", "an action", "sleep"),
        ("reconfig 0 prioriti=1", "prioriti=1", "a setting of a member", "priority"),
        ("failpoint 0 comands=hello", "comands=hello", "a setting of a fail point", "commands"),
    ] {
        check(line, &format!("`{wrong}` is not {kind}: did you mean `{right}`?"));
    }
    check("kill", "MEMBER is missing; write it as `kill MEMBER`");
    check("sleep long", "`long` is no time: it needs a number of seconds, for example 2.5");
    check("5s # later", "the step is missing; write a line as `1.5s kill primary`");
    check(
        "7 kill 0",
        "`7` is not a time; write a line as `AT VERB ...`, such as `1.5s kill primary`",
    );
}

#[test]
fn every_verb_that_is_announced_is_a_command_with_help() {
    for verb in Command::verbs() {
        if let Err(error) = Command::parse(verb) {
            let is_known = error.contains(" is missing; write it as `") || verb == "sleep";
            assert!(is_known, "{verb}: {error}");
        }
        let help = Command::help();
        assert!(help.lines().any(|line| line.starts_with(verb)), "{verb}");
    }
}
