use sdam_core::{
    error::{Error, ErrorKind, Stage},
    ids::ServerId,
    server::Rtt,
    time::Instant,
    topology::TopologyType,
};
use sdam_events::facts::Facts;

use super::*;

const TIME: &str = "12:34:56.789Z";

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}

fn server(name: &str, server_type: ServerType) -> ServerDescription {
    let mut server = ServerDescription::unknown(ServerId::from_u64(1), address(name));
    server.server_type = server_type;
    if server_type.is_available() {
        server.rtt = Some(Rtt { average: Duration::from_micros(1_234), ..Rtt::default() });
    }
    server
}

fn failed(name: &str, message: &str) -> ServerDescription {
    let error = Error::new(ErrorKind::Network, Stage::Connect, message);
    ServerDescription::failed(ServerId::from_u64(1), address(name), error, Instant::EPOCH)
}

fn set(servers: impl IntoIterator<Item = ServerDescription>) -> TopologyDescription {
    TopologyDescription::new(TopologyType::ReplicaSetNoPrimary, servers)
}

#[track_caller]
fn check(previous: Option<&TopologyDescription>, new: &TopologyDescription, expected: &str) {
    let screen = Screen::new(Palette::Plain);
    let text = screen.topology(TIME, previous, new, Access::ReadableOnly);
    assert_eq!(text, expected);
}

#[test]
fn columns_are_aligned_and_changes_are_marked() {
    let secondary = server("a", ServerType::RsSecondary);
    let before = set([
        secondary.clone(),
        server("longer.example.com:1", ServerType::RsPrimary),
        server("left", ServerType::RsArbiter),
    ]);
    let after = set([
        secondary,
        failed("longer.example.com:1", "connection refused"),
        server("new", ServerType::Unknown),
    ]);
    check(
        Some(&before),
        &after,
        "\
12:34:56.789Z  ReplicaSetNoPrimary, readable only
   a:27017               RSSecondary         1.23 ms
 ~ longer.example.com:1  Unknown                   -  was RSPrimary
     network error at connect: connection refused
 + new:27017             Unknown                   -
 - left:27017            removed
",
    );
}

#[test]
fn changed_fields_of_a_server_of_the_same_type_are_listed() {
    let check = |change: fn(&mut ServerDescription), expected: &str| {
        let before = server("a", ServerType::RsSecondary);
        let mut after = before.clone();
        change(&mut after);
        let (before, after) = (set([before]), set([after]));
        let screen = Screen::new(Palette::Plain);
        let text = screen.topology(TIME, Some(&before), &after, Access::ReadableOnly);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line, format!(" ~ a:27017  RSSecondary         1.23 ms  {expected}"));
    };
    check(|server| server.primary = Some(address("b")), "primary: b:27017");
    check(
        |server| {
            server.election.set_version = Some(2);
            server.hosts = [address("a")].into();
        },
        "setVersion none > 2, hosts +a:27017",
    );
    check(|server| server.tags = [("dc", "ny")].into_iter().collect(), "tags now {dc: ny}");
    check(|server| server.wire_versions.max = 9, "new wire versions");
    check(
        |server| {
            server.topology_version = Some(sdam_core::ids::TopologyVersion {
                process_id: sdam_core::ids::ObjectId::default(),
                counter: 1,
            });
        },
        "new topologyVersion",
    );
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let long = "cluster0-shard-00-00.abcde.mongodb.example.net:27017";
    let message = "the server has sent no reply for a long time, and this message is longer than \
                   one line of a terminal";
    let before = set([server("a", ServerType::RsSecondary)]);
    let mut changed = server("a", ServerType::RsSecondary);
    changed.primary = Some(address(long));
    let topology = set([changed, failed(&long[4..], message)]);
    let screen = Screen::new(Palette::Plain);
    let text = screen.topology(TIME, Some(&before), &topology, Access::Neither)
        + &screen.note(TIME, Tone::Normal, message);
    for line in text.lines() {
        assert!(columns(line) <= WIDTH, "{line}");
    }
    assert_eq!(text.lines().count(), 8, "{text}");
}

#[test]
fn of_many_servers_only_those_that_changed_are_shown() {
    let routers = |down: usize| {
        let servers = (0..1000).map(|number| {
            let name = format!("mongos{number:04}");
            if number < down { failed(&name, "refused") } else { server(&name, ServerType::Mongos) }
        });
        TopologyDescription::new(TopologyType::Sharded, servers)
    };
    check(
        Some(&routers(2)),
        &routers(3),
        "\
12:34:56.789Z  Sharded, readable only
 ~ mongos0002:27017  Unknown                   -  was Mongos
     network error at connect: refused
   unchanged: 2 Unknown, 997 Mongos
",
    );
    let screen = Screen::new(Palette::Plain);
    let text = screen.topology(TIME, None, &routers(0), Access::Writable);
    assert_eq!(text.lines().count(), 1001);
}

#[test]
fn only_a_terminal_gets_escape_sequences() {
    let topology = set([server("a", ServerType::RsSecondary), failed("b", "x\x1b[2J")]);
    let show = |palette| Screen::new(palette).topology(TIME, None, &topology, Access::Neither);
    assert_eq!(
        show(Palette::Plain),
        "\
12:34:56.789Z  ReplicaSetNoPrimary, neither readable nor writable
   a:27017  RSSecondary         1.23 ms
   b:27017  Unknown                   -
     network error at connect: x\u{fffd}[2J
",
        "a snapshot marks no change"
    );
    let coloured = show(Palette::Ansi);
    assert!(coloured.contains("\x1b[36mRSSecondary"), "{coloured}");
    assert!(!coloured.contains("\x1b[2J"), "{coloured}");
}

/// Also checks that events contain everything that the text needs, because the facts are derived
/// from events alone.
#[test]
fn a_failover_names_both_primaries_and_the_time_without() {
    use std::sync::Arc;

    use sdam_core::{
        event::{Event, EventKind},
        ids::ObjectId,
    };

    let screen = Screen::new(Palette::Plain);
    let mut facts = Facts::new();
    let mut previous = Arc::new(TopologyDescription::default());
    let mut at = |millis, topology: TopologyDescription| {
        let new = Arc::new(topology);
        let kind = EventKind::TopologyDescriptionChanged {
            previous: std::mem::replace(&mut previous, Arc::clone(&new)),
            new,
        };
        let event = Event::new(0, Instant::from_millis(millis), ObjectId::default(), kind);
        screen.facts(TIME, &facts.observe(&event))
    };
    let with = |primary: &str| {
        let primary = server(primary, ServerType::RsPrimary);
        TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, [primary])
    };
    let line = |words: &str| format!("{TIME}  {words}\n");
    assert_eq!(at(0, set([])), "");
    assert_eq!(at(10, with("a")), line("primary found: a:27017"));
    assert_eq!(at(1000, set([])), line("primary lost: a:27017"));
    assert_eq!(at(1430, with("b")), line("no primary for 0.43 s to 1.42 s: a:27017 -> b:27017"));
    let silent = at(2000, with("c"));
    let silent: Vec<_> = silent.split_whitespace().skip(1).collect();
    assert_eq!(
        silent.join(" "),
        "no primary for up to 0.57 s: b:27017 -> c:27017, replaced by c:27017; last answer 0.57 s \
         before"
    );
    assert_eq!(at(3000, set([])), line("primary lost: c:27017"));
    assert_eq!(
        at(3012, with("c")),
        line("no primary for 0.012 s to 1.01 s: c:27017 is primary again")
    );
}
