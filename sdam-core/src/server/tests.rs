use alloc::{format, vec, vec::Vec};
use core::time::Duration;

use super::*;
use crate::{
    error::{ErrorKind, Stage},
    ids::ObjectId,
};

fn address(name: &str) -> ServerAddress {
    ServerAddress::parse(name).unwrap()
}

const ID: ServerId = ServerId::from_u64(1);
const NOW: Instant = Instant::from_millis(7);

/// Returns a reply in which no field is empty.
fn reply() -> Hello {
    Hello {
        server_type: ServerType::RsSecondary,
        wire_versions: WireVersions { min: 1, max: 21 },
        me: Some(address("me")),
        hosts: [address("a"), address("b")].into(),
        passives: [address("c")].into(),
        arbiters: [address("d")].into(),
        tags: [("dc", "ny")].into_iter().collect(),
        set_name: Some("rs".into()),
        election: ElectionTuple {
            election_id: Some(ObjectId::from_bytes([1; 12])),
            set_version: Some(3),
        },
        primary: Some(address("a")),
        last_write_date: Some(1_717_171_717_000),
        logical_session_timeout_minutes: Some(30),
        topology_version: Some(TopologyVersion {
            process_id: ObjectId::from_bytes([2; 12]),
            counter: 4,
        }),
        is_cryptd: Some(true),
        ..Hello::default()
    }
}

fn rtt(millis: u64) -> Rtt {
    Rtt { average: Duration::from_millis(millis), ..Rtt::default() }
}

fn described() -> ServerDescription {
    ServerDescription::from_hello(ID, address("dialled"), reply(), Some(rtt(5)), NOW)
}

#[test]
fn from_hello_copies_every_field_of_the_reply() {
    // The `Debug` output is compared, because `==` ignores some fields (A-21 to,
    //
    let own = reply();
    let expected = ServerDescription {
        id: ID,
        address: address("dialled"),
        server_type: own.server_type,
        error: None,
        rtt: Some(rtt(5)),
        last_update_time: Some(NOW),
        last_write_date: own.last_write_date,
        wire_versions: own.wire_versions,
        me: own.me,
        hosts: own.hosts,
        passives: own.passives,
        arbiters: own.arbiters,
        tags: own.tags,
        set_name: own.set_name,
        election: own.election,
        primary: own.primary,
        logical_session_timeout_minutes: own.logical_session_timeout_minutes,
        topology_version: own.topology_version,
        is_cryptd: own.is_cryptd,
    };
    assert_eq!(format!("{:?}", described()), format!("{expected:?}"));
    let members: Vec<_> = expected.members().map(ServerAddress::host).collect();
    assert_eq!(members, ["a", "b", "c", "d"]);
}

#[test]
fn a_failed_server_has_default_fields_and_its_error() {
    // Each field has the specification's default, except the error (A-22, A-23, A-27 to A-36,
    // C-17, C-20).
    let unknown = ServerDescription::unknown(ID, address("dialled"));
    assert_eq!(unknown.server_type, ServerType::Unknown);
    assert_eq!(unknown.wire_versions, WireVersions { min: 0, max: 0 });
    assert_eq!(unknown.members().count(), 0);
    assert!(unknown.tags.is_empty());
    let absent = [
        unknown.error.is_none(),
        unknown.rtt.is_none(),
        unknown.last_update_time.is_none(),
        unknown.last_write_date.is_none(),
        unknown.me.is_none(),
        unknown.set_name.is_none(),
        unknown.election.election_id.is_none(),
        unknown.election.set_version.is_none(),
        unknown.primary.is_none(),
        unknown.logical_session_timeout_minutes.is_none(),
        unknown.topology_version.is_none(),
        unknown.is_cryptd.is_none(),
    ];
    assert_eq!(absent, [true; 12]);

    let error = Error::new(ErrorKind::Network, Stage::Connect, "refused");
    let failed = ServerDescription::failed(ID, address("dialled"), error.clone(), NOW);
    let expected = ServerDescription { error: Some(error), last_update_time: Some(NOW), ..unknown };
    assert_eq!(format!("{failed:?}"), format!("{expected:?}"));
}

#[test]
fn equality_compares_only_the_fields_of_the_specification() {
    // Times, dates and round-trip times are ignored.
    type Change = fn(&mut ServerDescription);
    let differ: Vec<Change> = vec![
        |server| server.address = address("other"),
        |server| server.server_type = ServerType::RsOther,
        |server| {
            let error = Error::new(ErrorKind::Network, Stage::Hello, "broken");
            server.error = Some(error);
        },
        |server| server.wire_versions.min = 2,
        |server| server.wire_versions.max = 22,
        |server| server.me = None,
        |server| server.hosts = [address("a")].into(),
        |server| server.passives = [].into(),
        |server| server.arbiters = [].into(),
        |server| server.tags = TagSet::default(),
        |server| server.set_name = Some("other".into()),
        |server| server.election.set_version = Some(4),
        |server| server.election.election_id = None,
        |server| server.primary = Some(address("b")),
        |server| server.logical_session_timeout_minutes = None,
        |server| server.topology_version = None,
        |server| server.is_cryptd = None,
    ];
    for (index, change) in differ.into_iter().enumerate() {
        let mut other = described();
        change(&mut other);
        assert_ne!(other, described(), "change {index}");
    }
    let same: Vec<Change> = vec![
        |server| server.id = ServerId::from_u64(2),
        |server| server.rtt = Some(rtt(6)),
        |server| server.last_update_time = None,
        |server| server.last_write_date = None,
    ];
    for (index, change) in same.into_iter().enumerate() {
        let mut other = described();
        change(&mut other);
        assert_eq!(other, described(), "change {index}");
    }
}

#[test]
fn server_types_have_the_specified_names_and_only_some_hold_data() {
    // Not every available server holds data (A-2, A-5, L-2).
    let check = |of: ServerType, name, data, available| {
        assert_eq!(of.as_str(), name);
        assert_eq!(of.is_data_bearing(), data, "{name}");
        assert_eq!(of.is_available(), available, "{name}");
    };
    check(ServerType::Unknown, "Unknown", false, false);
    check(ServerType::PossiblePrimary, "PossiblePrimary", false, false);
    check(ServerType::Standalone, "Standalone", true, true);
    check(ServerType::Mongos, "Mongos", true, true);
    check(ServerType::RsPrimary, "RSPrimary", true, true);
    check(ServerType::RsSecondary, "RSSecondary", true, true);
    check(ServerType::RsArbiter, "RSArbiter", false, true);
    check(ServerType::RsOther, "RSOther", false, true);
    check(ServerType::RsGhost, "RSGhost", false, true);
    check(ServerType::LoadBalancer, "LoadBalancer", true, true);
}

#[test]
fn an_error_of_the_known_version_is_stale_and_a_reply_is_not() {
    let version = |counter| {
        let process_id = ObjectId::from_bytes([2; 12]);
        Some(TopologyVersion { process_id, counter })
    };
    let server = ServerDescription { topology_version: version(4), ..described() };
    for (counter, than_error, than_reply) in [(3, true, true), (4, true, false), (5, false, false)]
    {
        assert_eq!(server.is_newer_than_error(version(counter)), than_error, "{counter}");
        assert_eq!(server.is_newer_than_reply(version(counter)), than_reply, "{counter}");
    }
    assert!(!server.is_newer_than_error(None));
}
