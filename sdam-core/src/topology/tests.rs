use alloc::{string::ToString, vec, vec::Vec};
use core::time::Duration;

use super::*;
use crate::{
    error::{Error, ErrorKind, Stage},
    ids::ObjectId,
    server::Rtt,
    time::Instant,
};

fn server(name: &str, server_type: ServerType) -> ServerDescription {
    let address = ServerAddress::new(name, 27017);
    let mut server = ServerDescription::unknown(ServerId::from_u64(1), address);
    server.server_type = server_type;
    server
}

fn replica_set() -> TopologyDescription {
    let servers = [
        server("b", ServerType::RsSecondary),
        server("a", ServerType::RsArbiter),
        server("c", ServerType::RsPrimary),
    ];
    TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, servers)
}

#[test]
fn a_difference_in_any_field_is_a_change() {
    // Two topologies are equal only if they have the same value in each of these fields.
    type Change = fn(&mut TopologyDescription);
    let changes: [(&str, Change); 7] = [
        ("type", |it| {
            it.topology_type = TopologyType::ReplicaSetNoPrimary;
        }),
        ("set name", |it| it.set_name = Some("other".into())),
        ("maximum", |it| it.max_election.set_version = Some(7)),
        ("error", |it| it.compatibility_error = Some("old".into())),
        ("sessions", |it| {
            it.logical_session_timeout_minutes = Some(7);
        }),
        ("fewer servers", |it| {
            it.servers.pop();
        }),
        ("a server", |it| {
            it.put(Arc::new(server("b", ServerType::Unknown)));
        }),
    ];
    assert_eq!(replica_set(), replica_set());
    for (name, change) in changes {
        let mut other = replica_set();
        change(&mut other);
        assert_ne!(other, replica_set(), "{name}");
        assert_ne!(replica_set(), other, "{name}");
    }
}

#[test]
fn servers_are_found_by_address_by_id_and_as_primary() {
    let mut of_set = replica_set();
    let names: Vec<_> = of_set.servers().iter().map(|it| it.address.host()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let host = |found: Option<&Arc<ServerDescription>>| {
        found.map(|server| server.address.host().to_string())
    };
    assert_eq!(host(of_set.primary()).as_deref(), Some("c"));
    for name in ["a", "b", "c"] {
        let found = of_set.server(&ServerAddress::new(name, 27017));
        assert_eq!(host(found).as_deref(), Some(name));
    }
    assert_eq!(of_set.server(&ServerAddress::new("bb", 27017)), None);
    let mut another = server("bb", ServerType::RsOther);
    another.id = ServerId::from_u64(9);
    of_set.put(Arc::new(another));
    let found = of_set.server_by_id(ServerId::from_u64(9));
    assert_eq!(host(found).as_deref(), Some("bb"));
    assert_eq!(of_set.server_by_id(ServerId::from_u64(8)), None);
    of_set.put(Arc::new(server("c", ServerType::RsSecondary)));
    assert_eq!(of_set.primary(), None);
}

#[test]
fn a_description_is_displayed_on_one_line() {
    let mut primary = server("a", ServerType::RsPrimary);
    primary.rtt = Some(Rtt { average: Duration::from_micros(2_340), ..Rtt::default() });
    primary.tags = [("dc", "ny")].into_iter().collect();
    let error = Error::new(ErrorKind::Network, Stage::Connect, "refused");
    let at = ServerAddress::new("b", 27017);
    let down = ServerDescription::failed(ServerId::from_u64(2), at, error, Instant::EPOCH);
    let mut topology =
        TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, vec![primary, down]);
    let servers = "servers: [{ address: a:27017, type: RSPrimary, rtt: 2.3 ms, tags: {dc: ny} }, \
                   { address: b:27017, type: Unknown, error: refused }] }";
    let check = |topology: &TopologyDescription, middle: &str| {
        let expected = ["{ type: ReplicaSetWithPrimary, ", middle, servers].concat();
        assert_eq!(topology.to_string(), expected);
    };
    check(&topology, "");
    topology.set_name = Some("rs".into());
    topology.max_election.election_id = Some(ObjectId::from_bytes([1; 12]));
    check(&topology, "setName: rs, ");
    topology.compatibility_error = Some("too old".into());
    check(&topology, "setName: rs, compatibilityError: too old, ");
}

fn addresses(names: &str) -> Vec<ServerAddress> {
    let of = |name| ServerAddress::new(name, 27017);
    names.split_whitespace().map(of).collect()
}

fn sample(known: &str, hosts: &str, max_hosts: usize, seed: u64) -> Vec<ServerAddress> {
    let server = |address| ServerDescription::unknown(ServerId::from_u64(1), address);
    let servers = addresses(known).into_iter().map(server);
    let topology = TopologyDescription::new(TopologyType::Sharded, servers);
    topology.sample_hosts(&addresses(hosts), max_hosts, &mut Rng::new(seed))
}

#[test]
fn all_distinct_hosts_are_taken_if_the_limit_allows_them() {
    // A limit of 0 means all hosts (N-25).
    for max_hosts in [0, 3, 4] {
        assert_eq!(sample("a x", "b a c b", max_hosts, 1), addresses("a b c"));
    }
}

#[test]
fn hosts_that_the_topology_has_stay_and_random_others_fill_the_limit() {
    // Hosts that the topology already contains stay, even if they exceed the limit (N-25).
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let chosen = sample("a b x", "a b c d e", 3, seed);
        assert_eq!(chosen[..2], addresses("a b"), "the known hosts");
        assert_eq!(chosen.len(), 3);
        seen.extend(chosen);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), addresses("a b c d e"));
    assert_eq!(sample("a b", "a b c", 1, 1), addresses("a b"), "none is removed");
}
