use std::sync::LazyLock;

use sdam_core::{
    ids::ServerId,
    server::{Rtt, ServerDescription, WireVersions},
};

use super::*;
use crate::{
    cli::tests::explain,
    terminal::{WIDTH, columns},
    testing::{block_on, capture, with_arbiter},
};

/// Returns the arguments for the deployment that `--demo` simulates. All of its members are in the
/// latency window, however busy this machine is.
fn demo(words: &str) -> Arguments {
    static SET: LazyLock<Served> = LazyLock::new(|| simulate().unwrap());
    of(&format!("{}&localThresholdMS=60000", SET.uri()), words)
}

fn of(uri: &str, words: &str) -> Arguments {
    explain(&words.split_whitespace().chain([uri]).collect::<Vec<_>>())
}

/// Runs the program; returns the exit code, the output and the remarks.
fn select(arguments: &Arguments) -> (Exit, String, String) {
    let (output, remarks, exit) = capture(|console| block_on(run(arguments, console)));
    for line in output.lines().chain(remarks.lines()) {
        // Connection strings cannot be wrapped.
        let fits = columns(line) <= WIDTH || line.contains("mongodb://");
        assert!(fits, "{line}");
    }
    (exit.unwrap(), output, remarks)
}

/// Returns for each server whether it was selected, its type and its verdict.
fn verdicts(output: &str) -> Vec<(bool, &str, &str)> {
    let rows = output.lines().filter(|line| line.contains(" RS"));
    let mut verdicts: Vec<_> = rows
        .map(|row| {
            let (_, verdict) = row.split_once(" ms  ").unwrap();
            let words: Vec<_> = row.trim_start_matches('>').split_whitespace().collect();
            (row.starts_with('>'), words[1], verdict)
        })
        .collect();
    verdicts.sort_unstable();
    verdicts
}

#[test]
fn the_chosen_server_is_marked_and_the_others_are_explained() {
    let (exit, output, remarks) = select(&demo("--write"));
    assert_eq!((exit, &*remarks), (Exit::SUCCESS, ""));
    assert!(output.starts_with("write operation on ReplicaSetWithPrimary\n"), "{output}");
    assert_eq!(
        verdicts(&output),
        [
            (false, "RSSecondary", "is not a primary"),
            (false, "RSSecondary", "is not a primary"),
            (true, "RSPrimary", "is selected"),
        ],
        "{output}"
    );
}

#[test]
fn a_direct_connection_is_explained_by_what_its_server_does() {
    let set = with_arbiter().serve().unwrap();
    let primary = set.primary().unwrap().unwrap();
    for (member, words, exit, expected) in [
        (1 - primary.0, "--write", Exit::NO_SERVER, "refuses them as RSSecondary"),
        (2, "", Exit::NO_SERVER, "refuses them as RSArbiter"),
        (primary.0, "--read secondary", Exit::SUCCESS, "the read preference does not choose"),
    ] {
        let (member, _) = &set.places()[usize::from(member)];
        let uri = format!("mongodb://{member}/?directConnection=true");
        let (ended, output, _) = select(&of(&uri, words));
        assert_eq!(ended, exit, "{output}");
        assert!(output.contains(expected), "{output}");
    }
}

#[test]
fn tag_sets_are_tried_in_order() {
    let (exit, output, _) = select(&demo("--read nearest --tags dc:moon --tags dc:la,rack:1"));
    assert_eq!(exit, Exit::SUCCESS, "{output}");
    let verdicts = verdicts(&output);
    let chosen: Vec<_> = verdicts.iter().filter(|(chosen, ..)| *chosen).collect();
    assert_eq!(chosen.len(), 1, "{output}");
    // Only the first line of each wrapped reason is compared.
    let others = verdicts.iter().filter(|(chosen, ..)| !*chosen);
    assert!(
        others.map(|(.., verdict)| verdict).all(|words| words.starts_with("has the tags {dc: ny,")),
        "{output}"
    );
}

#[test]
fn a_selection_without_matching_servers_is_explained_and_fails() {
    let picky = "--tags dc:moon --timeout 0.001 --read";
    for (arguments, exit, expected) in [
        (demo(&format!("{picky} secondary")), Exit::NO_SERVER, "(serverSelectionTimeoutMS)"),
        (demo(&format!("{picky} primary")), Exit::CONFIGURATION, "readPreferenceTags"),
        (demo("--read secondary --max-staleness 10"), Exit::CONFIGURATION, "must be at least 90"),
        (of("http://db", ""), Exit::CONFIGURATION, "error: "),
    ] {
        let (ended, output, remarks) = select(&arguments);
        assert_eq!(ended, exit, "{output}{remarks}");
        assert!(remarks.contains(expected), "{remarks}");
    }
}

#[test]
fn the_change_that_each_rejected_server_needs_is_shown() {
    let changes = |words: &str| -> Vec<String> {
        let (_, output, remarks) = select(&demo(words));
        let text = format!("{output}{remarks}");
        let (_, changes) = text.split_once("what would include the others\n").unwrap();
        let changes = changes.lines().map(|line| line.split_once(": ").unwrap().1);
        let mut changes: Vec<_> = changes.map(str::to_owned).collect();
        changes.sort();
        changes
    };
    assert_eq!(changes("--read primary"), ["--read nearest"; 2]);
    let expected = ["--tags dc:ny,rack:1", "--tags dc:ny,rack:2"];
    assert_eq!(changes("--read nearest --tags dc:la,rack:1"), expected);
    let expected = "writes need it to be elected (rs.stepDown() at the primary)";
    assert_eq!(changes("--write"), [expected; 2]);
    // Any of the three members may be the primary, so the test does not know the primary's tags.
    // The time is long enough to discover all members on a machine under load.
    let found = changes("--read secondary --tags dc:moon,rack:1 --timeout 3");
    assert_eq!(found.len(), 3, "{found:?}");
    let both = |change: &&String| change.starts_with("--read nearest, and --tags dc:");
    assert_eq!(found.iter().filter(both).count(), 1, "{found:?}");
}

#[test]
fn several_changes_are_combined_and_arbiters_are_left_out() {
    let member = |number, server_type, rtt| {
        let address = ServerAddress::new(&format!("m{number}"), 1);
        let mut member = ServerDescription::unknown(ServerId::from_u64(number), address);
        member.server_type = server_type;
        member.wire_versions = WireVersions { min: 0, max: 21 };
        let average = Duration::from_millis(rtt);
        member.rtt = Some(Rtt { average, ..Rtt::default() });
        member
    };
    let servers = [
        member(1, ServerType::RsPrimary, 2),
        member(2, ServerType::RsSecondary, 2),
        member(3, ServerType::RsSecondary, 40),
        member(4, ServerType::RsArbiter, 2),
    ];
    let topology = TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, servers);
    let check = |preference, expected: &[(&str, &str)]| {
        let criteria = Criteria::read(preference).unwrap();
        let found = changes(&topology, &Settings::default(), &criteria);
        let found = found.iter().map(|(address, change)| (address.host(), &**change));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    };
    let (nearest, latency) = ("--read nearest", "localThresholdMS=39");
    let mode = ReadPreference::new;
    check(mode(ReadMode::Secondary), &[("m1", nearest), ("m3", latency)]);
    let both = format!("{nearest}, and {latency}");
    check(mode(ReadMode::Primary), &[("m2", nearest), ("m3", &both)]);
    let tagged = mode(ReadMode::Nearest).with_tag_sets(vec![tags("dc:ny").unwrap()]);
    let (any, both) = ("--tags ''", format!("--tags '', and {latency}"));
    check(tagged, &[("m1", any), ("m2", any), ("m3", &both)]);
}
