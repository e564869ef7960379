use std::sync::LazyLock;

use sdam_core::{
    ids::ServerId,
    read_preference::{ReadMode, TagSet},
    server::{Rtt, ServerDescription, WireVersions},
};

use super::*;
use crate::{
    terminal::{WIDTH, columns},
    testing::{block_on, capture, with_arbiter},
};

/// Returns the arguments for the deployment that `--demo` simulates. All of its members are in the
/// latency window, however busy this machine is.
fn demo() -> Arguments {
    static SET: LazyLock<Served> = LazyLock::new(|| simulate().unwrap());
    let uri = format!("{}&localThresholdMS=60000", SET.uri());
    Arguments { target: Target::new(&uri), ..Arguments::default() }
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

fn tags(dc: &str, rack: &str) -> TagSet {
    [("dc", dc), ("rack", rack)].into_iter().collect()
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
    let writing = Arguments { write: true, ..demo() };
    let (exit, output, remarks) = select(&writing);
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
    let direct = |member: u16, write, read| {
        let (member, _) = &set.places()[usize::from(member)];
        let uri = format!("mongodb://{member}/?directConnection=true");
        select(&Arguments { target: Target::new(&uri), write, read, ..Arguments::default() })
    };
    let (exit, output, _) = direct(1 - primary.0, true, None);
    assert_eq!(exit, Exit::NO_SERVER, "{output}");
    assert!(output.contains("refuses them as RSSecondary"), "{output}");
    let (exit, output, _) = direct(2, false, None);
    assert_eq!(exit, Exit::NO_SERVER, "{output}");
    assert!(output.contains("refuses them as RSArbiter"), "{output}");
    let (exit, output, _) = direct(primary.0, false, Some(ReadMode::Secondary));
    assert_eq!(exit, Exit::SUCCESS, "{output}");
    assert!(output.contains("the read preference does not choose"), "{output}");
}

#[test]
fn tag_sets_are_tried_in_order() {
    let reading = Arguments {
        read: Some(ReadMode::Nearest),
        tags: vec![tags("moon", "1"), tags("la", "1")],
        ..demo()
    };
    let (exit, output, _) = select(&reading);
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
    let check = |arguments: &Arguments, exit: Exit, expected: &str| {
        let (ended, output, remarks) = select(arguments);
        assert_eq!(ended, exit, "{output}{remarks}");
        assert!(remarks.contains(expected), "{remarks}");
    };
    let picky = Arguments {
        read: Some(ReadMode::Secondary),
        tags: vec![tags("moon", "1")],
        timeout: Some(Duration::from_millis(1)),
        ..demo()
    };
    check(&picky, Exit::NO_SERVER, "(serverSelectionTimeoutMS)");
    let primary = Arguments { read: Some(ReadMode::Primary), ..picky.clone() };
    check(&primary, Exit::CONFIGURATION, "readPreferenceTags");
    let hasty = Arguments {
        read: Some(ReadMode::Secondary),
        max_staleness: Some(Duration::from_secs(10)),
        ..demo()
    };
    check(&hasty, Exit::CONFIGURATION, "must be at least 90");
    let malformed = Arguments { target: Target::new("http://db"), ..Arguments::default() };
    check(&malformed, Exit::CONFIGURATION, "error: ");
}

#[test]
fn the_change_that_each_rejected_server_needs_is_shown() {
    let changes = |arguments: &Arguments| -> Vec<String> {
        let (_, output, remarks) = select(arguments);
        let text = format!("{output}{remarks}");
        let (_, changes) = text.split_once("what would include the others\n").unwrap();
        let changes = changes.lines().map(|line| line.split_once(": ").unwrap().1);
        let mut changes: Vec<_> = changes.map(str::to_owned).collect();
        changes.sort();
        changes
    };
    let primary = Arguments { read: Some(ReadMode::Primary), ..demo() };
    assert_eq!(changes(&primary), ["--read nearest"; 2]);
    let tagged = Arguments { read: Some(ReadMode::Nearest), tags: vec![tags("la", "1")], ..demo() };
    let expected = ["--tags dc:ny,rack:1", "--tags dc:ny,rack:2"];
    assert_eq!(changes(&tagged), expected);
    let writing = Arguments { write: true, ..demo() };
    let expected = "writes need it to be elected (rs.stepDown() at the primary)";
    assert_eq!(changes(&writing), [expected; 2]);
    // Any of the three members may be the primary, so the test does not know the primary's tags.
    let nowhere = Arguments {
        read: Some(ReadMode::Secondary),
        tags: vec![tags("moon", "1")],
        // Long enough to discover all members on a machine under load.
        timeout: Some(Duration::from_secs(3)),
        ..demo()
    };
    let found = changes(&nowhere);
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
    let tagged = mode(ReadMode::Nearest).with_tag_sets(vec![tags("ny", "1")]);
    let (any, both) = ("--tags ''", format!("--tags '', and {latency}"));
    check(tagged, &[("m1", any), ("m2", any), ("m3", &both)]);
}
