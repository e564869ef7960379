use std::{string::ToString, vec};

use sdam_core::{
    ids::ServerId,
    read_preference::{ReadPreference, TagSet},
    server::ServerType::{RsArbiter, RsGhost, RsOther, RsPrimary, RsSecondary, Unknown},
    topology::{
        DepartureReason,
        TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded, Single},
    },
};

use super::*;
use crate::{
    candidate::Candidates,
    criteria::Criteria,
    explain::explain,
    settings::Settings,
    testing::{address, failed, server, tags, topology},
};

fn diagnoses(topology: &TopologyDescription, criteria: &Criteria) -> Vec<Diagnosis> {
    diagnose(topology, &explain(topology, &Settings::default(), criteria))
}

/// Returns the only diagnosis of a sharded cluster with these servers, as a string.
fn only(servers: impl IntoIterator<Item = ServerDescription>) -> std::string::String {
    let found = diagnoses(&topology(Sharded, servers), &Criteria::write());
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].to_string()
}

fn read(mode: ReadMode, sets: Vec<TagSet>) -> Criteria {
    Criteria::read(ReadPreference::new(mode).with_tag_sets(sets)).unwrap()
}

fn network(number: u64, stage: Stage) -> ServerDescription {
    failed(number, ErrorKind::Network, stage, "broken")
}

/// Returns a secondary that names the members with these numbers.
fn naming(number: u64, members: &[u64]) -> ServerDescription {
    let mut server = server(number, RsSecondary);
    server.hosts = members.iter().map(|number| address(*number)).collect();
    server
}

#[test]
fn nothing_reachable_is_distinguished_from_some_members_unreachable() {
    let refused = |number| network(number, Stage::Connect);
    let late = |number| failed(number, ErrorKind::Timeout, Stage::Connect, "no connection");
    let write = Criteria::write();
    let all = topology(TopologyType::Unknown, [refused(1), refused(2)]);
    assert_eq!(
        diagnoses(&all, &write),
        [Diagnosis::NothingReachable { addresses: vec![address(1), address(2)], timed_out: false }]
    );
    let all = topology(TopologyType::Unknown, [late(1), late(2)]);
    assert!(matches!(
        diagnoses(&all, &write)[..],
        [Diagnosis::NothingReachable { timed_out: true, .. }]
    ));
    let some = topology(ReplicaSetWithPrimary, [server(1, RsPrimary), refused(2)]);
    assert_eq!(
        diagnoses(&some, &write),
        [Diagnosis::Unreachable { addresses: vec![address(2)], advertised: false }]
    );
}

#[test]
fn tls_on_one_side_only_is_suspected_unless_some_server_answers() {
    let write = Criteria::write();
    let check = |servers: Vec<ServerDescription>, expected: &[Diagnosis]| {
        assert_eq!(diagnoses(&topology(Sharded, servers), &write), expected);
    };
    let addresses = || vec![address(1)];
    check(vec![network(1, Stage::Hello)], &[Diagnosis::TlsExpected { addresses: addresses() }]);
    check(vec![failed(1, ErrorKind::Timeout, Stage::Hello, "no reply")], &[]);
    check(vec![network(1, Stage::Hello), server(2, sdam_core::server::ServerType::Mongos)], &[]);
}

#[test]
fn an_answer_that_is_no_reply_is_not_taken_for_tls() {
    let garbage = failed(1, ErrorKind::Protocol, Stage::Hello, "it begins with HTTP");
    let expected = "there is no usable reply from s01:27017: it begins with HTTP";
    assert_eq!(only([garbage]), expected);
}

#[test]
fn operations_that_the_server_of_a_direct_connection_refuses_are_diagnosed() {
    let check = |server_type, criteria: &Criteria, is_found| {
        let topology = topology(Single, [server(1, server_type)]);
        let found = diagnoses(&topology, criteria);
        let expected = Diagnosis::Refuses { address: address(1), server_type };
        assert_eq!(found, if is_found { vec![expected] } else { vec![] });
    };
    check(RsSecondary, &Criteria::write(), true);
    check(RsSecondary, &Criteria::primary(), false);
    check(RsPrimary, &Criteria::write(), false);
    for server_type in [RsArbiter, RsOther] {
        check(server_type, &Criteria::write(), true);
        check(server_type, &read(ReadMode::Nearest, vec![]), true);
    }
    let set = topology(ReplicaSetWithPrimary, [server(1, RsPrimary), server(2, RsSecondary)]);
    assert_eq!(diagnoses(&set, &Criteria::write()), []);
}

#[test]
fn a_set_that_was_never_initiated_does_not_wait_for_an_election() {
    let ghost = || Diagnosis::NotInitiated { addresses: vec![address(1)] };
    for servers in [vec![server(1, RsGhost)], vec![server(1, RsGhost), server(2, Unknown)]] {
        let set = topology(ReplicaSetNoPrimary, servers);
        assert_eq!(diagnoses(&set, &Criteria::write()), [ghost()]);
    }
    let direct = topology(Single, [server(1, RsGhost)]);
    assert_eq!(diagnoses(&direct, &Criteria::write()), [ghost()]);
    assert!(ghost().remedy().contains("rs.initiate()"));
    let set = topology(ReplicaSetNoPrimary, [server(1, RsGhost), server(2, RsSecondary)]);
    let elected = Diagnosis::NoPrimary { reached: 2, members: 2 };
    assert_eq!(diagnoses(&set, &Criteria::write()), [elected]);
}

#[test]
fn attempts_to_connect_that_last_are_no_lack_of_time() {
    let check = |servers: Vec<ServerDescription>, times: [Option<u64>; 2], text: &str| {
        let topology = topology(ReplicaSetNoPrimary, servers);
        let mut explanation = explain(&topology, &Settings::default(), &Criteria::write());
        for (server, time) in explanation.servers.iter_mut().zip(times) {
            server.connecting_for = time.map(core::time::Duration::from_millis);
        }
        let found = diagnose(&topology, &explanation);
        assert_eq!(found[0].to_string(), text);
        assert_eq!(found[0].remedy().contains("firewall"), text.starts_with("no answer"), "{text}");
    };
    let none = || vec![server(1, Unknown), server(2, Unknown)];
    check(none(), [Some(999), None], "no server has answered yet");
    let both = "no answer from s01:27017, s02:27017 for 4.5 s to an attempt to connect";
    check(none(), [Some(5000), Some(4500)], both);
    let seed = vec![server(1, RsSecondary), server(2, Unknown)];
    let one = "no answer from s02:27017 for 5.0 s to an attempt to connect";
    check(seed, [None, Some(5000)], one);
}

#[test]
fn failures_of_tls_are_listed_by_their_cause() {
    let tls = |number, cause: &str| failed(number, ErrorKind::Protocol, Stage::Tls, cause);
    let expired = "the server's certificate has expired; renew it";
    let unknown = "the issuer is unknown";
    assert_eq!(
        only([tls(1, expired), tls(2, unknown), tls(3, expired)]),
        "TLS could not be negotiated with s01:27017, s03:27017: the server's certificate has \
         expired; renew it; and with s02:27017: the issuer is unknown"
    );
}

#[test]
fn failures_of_a_proxy_are_reported_by_the_first_of_them() {
    let proxy = |number| {
        let cause = alloc::format!("no connection to s0{number}:27017: the proxy does not answer");
        failed(number, ErrorKind::Timeout, Stage::Proxy, &cause)
    };
    let check = |servers: Vec<ServerDescription>, others: &str| {
        let first = "no connection to s01:27017: the proxy does not answer";
        assert_eq!(only(servers), alloc::format!("{first}{others}"));
    };
    check(vec![proxy(1)], "");
    check(vec![proxy(1), proxy(2)], " (s02:27017 fails at the proxy, too)");
    check(vec![proxy(1), proxy(2), proxy(3)], " (2 more servers fail at the proxy, too)");
}

#[test]
fn names_that_lead_nowhere_are_compared_with_the_address_of_the_client() {
    let reason = DepartureReason::Misnamed { me: address(1) };
    let left = Departure::new(ServerId::from_u64(9), address(9), reason);
    let servers = [network(1, Stage::Connect), network(2, Stage::Dns)];
    let topology = topology(ReplicaSetNoPrimary, servers);
    let topology = topology.with_departures(core::slice::from_ref(&left));
    let found = diagnoses(&topology, &Criteria::write());
    let text = "the set calls itself s01:27017, you connected to s09:27017: s01:27017 cannot be \
                reached from here";
    assert_eq!(found[0].to_string(), text);
    assert_eq!(found[0].remedy(), Obstacle::NAMES);
    assert!(matches!(found[1], Diagnosis::Unresolvable { advertised: true, .. }));
    assert_eq!(found.len(), 3);
}

#[test]
fn an_unreachable_primary_is_distinguished_from_no_primary() {
    let write = Criteria::write();
    let mut informed = naming(1, &[1, 2, 3]);
    informed.primary = Some(address(2));
    let others = || [server(2, Unknown), server(3, RsArbiter)];
    let known = topology(ReplicaSetNoPrimary, others().into_iter().chain([informed]));
    assert_eq!(diagnoses(&known, &write), [Diagnosis::PrimaryUnreachable { address: address(2) }]);
    let none = topology(ReplicaSetNoPrimary, others().into_iter().chain([naming(1, &[1, 2, 3])]));
    for criteria in [write, read(ReadMode::Primary, vec![])] {
        let expected = Diagnosis::NoPrimary { reached: 2, members: 3 };
        assert_eq!(diagnoses(&none, &criteria), [expected], "{criteria}");
    }
    assert_eq!(diagnoses(&none, &read(ReadMode::Secondary, vec![])), []);
}

#[test]
fn wrong_set_names_are_always_reported_and_address_mismatches_only_on_replica_sets() {
    let message = "belongs to the set `other`, not `rs`: use replicaSet=other";
    let wrong = failed(1, ErrorKind::SetName, Stage::Hello, message);
    let found = diagnoses(&topology(Single, [wrong]), &Criteria::write());
    assert!(matches!(found[..], [Diagnosis::WrongSetName { .. }]));
    let text = "s01:27017 belongs to the set `other`, not `rs`: use replicaSet=other";
    assert_eq!(found[0].to_string(), text);
    let mut renamed = server(1, RsPrimary);
    renamed.me = Some(address(9));
    let mismatch = Diagnosis::AddressMismatch { address: address(1), me: address(9), error: None };
    let check = |topology_type, expected: &[Diagnosis]| {
        let topology = topology(topology_type, [renamed.clone()]);
        assert_eq!(diagnoses(&topology, &Criteria::write()), expected);
    };
    check(ReplicaSetWithPrimary, &[mismatch]);
    // On a direct connection, a different name is normal, for example through a tunnel.
    check(Single, &[]);
}

#[test]
fn departures_come_first_if_no_server_is_available_and_else_only_mistakes_are_reported() {
    let wrong =
        || DepartureReason::WrongSetName { found: Some("rs0".into()), wanted: "wrong".into() };
    let not_listed = DepartureReason::NotListed { primary: address(2) };
    let departures = [(1, wrong()), (3, not_listed)].map(|(number, reason)| {
        Departure::new(ServerId::from_u64(number), address(number), reason)
    });
    let diagnosed = |topology: TopologyDescription| {
        let topology = topology.with_departures(&departures);
        diagnoses(&topology, &read(ReadMode::Nearest, vec![tags(&[("dc", "la")])]))
    };
    let [first, second] = departures.clone().map(Diagnosis::Departed);
    let no_servers = Diagnosis::NoServers { set_name: None };
    let empty = diagnosed(topology(ReplicaSetNoPrimary, []));
    assert_eq!(empty, [first.clone(), second, no_servers]);
    let text = "s01:27017 belongs to the set `rs0`, not `wrong`: use replicaSet=rs0";
    assert_eq!(empty[0].to_string(), text);
    let set = topology(ReplicaSetWithPrimary, [server(2, RsPrimary)]);
    assert_eq!(diagnosed(set), [Diagnosis::NoMatchingTags, first]);
}

#[test]
fn rejected_credentials_are_reported_with_the_servers_message() {
    let rejected = failed(1, ErrorKind::Command, Stage::Auth, "Authentication failed.");
    assert_eq!(only([rejected]), "s01:27017 rejects the credentials: Authentication failed.");
}

#[test]
fn a_socket_file_that_is_missing_is_not_blamed_on_the_network() {
    let mut server = network(1, Stage::Connect);
    server.address = ServerAddress::parse("/tmp/mongodb-27017.sock").unwrap();
    let found = diagnoses(&topology(Single, [server]), &Criteria::write());
    assert!(found[0].remedy().contains("net.unixDomainSocket.pathPrefix"), "{found:?}");
}

#[test]
fn an_error_in_reply_to_hello_has_the_remedy_of_its_code() {
    let refused = |code| {
        let mut server = failed(1, ErrorKind::Command, Stage::Hello, "not here");
        server.error = server.error.map(|error| error.with_code(code));
        let found = diagnoses(&topology(Sharded, [server]), &Criteria::write());
        assert_eq!(found[0].to_string(), "hello is refused by s01:27017: not here");
        found[0].remedy()
    };
    assert!(refused(354).contains("loadBalanced=true"));
    assert_eq!(refused(1), "look at the log of the server");
}

#[test]
fn an_empty_topology_is_distinguished_from_one_that_has_not_answered() {
    let write = Criteria::write();
    let empty = topology(ReplicaSetNoPrimary, []);
    assert_eq!(diagnoses(&empty, &write), [Diagnosis::NoServers { set_name: None }]);
    let silent = topology(TopologyType::Unknown, [server(1, Unknown)]);
    assert_eq!(diagnoses(&silent, &write), [Diagnosis::NotAnsweredYet]);
}

#[test]
fn the_last_criterion_that_excluded_servers_is_reported() {
    let members = || {
        let mut tagged = server(2, RsSecondary);
        tagged.tags = tags(&[("dc", "ny")]);
        topology(ReplicaSetWithPrimary, [server(1, RsPrimary), tagged])
    };
    let check = |criteria: &Criteria, expected: &[Diagnosis]| {
        assert_eq!(diagnoses(&members(), criteria), expected, "{criteria}");
    };
    let la = || vec![tags(&[("dc", "la")])];
    check(&read(ReadMode::Nearest, la()), &[Diagnosis::NoMatchingTags]);
    check(&read(ReadMode::SecondaryPreferred, la()), &[]);
    let none = |suitable: &mut Candidates<'_>| suitable.retain(|_| false);
    check(
        &read(ReadMode::Nearest, vec![]).with_selector(Arc::new(none)),
        &[Diagnosis::DroppedBySelector],
    );
    let limit = core::time::Duration::from_secs(90);
    let limited = ReadPreference::new(ReadMode::Secondary).with_max_staleness(limit);
    check(&Criteria::read(limited).unwrap(), &[Diagnosis::StalenessUnknown]);
}

#[test]
fn every_diagnosis_has_its_own_remedy() {
    let addresses = || vec![address(1)];
    let error = || Error::new(ErrorKind::SetName, Stage::Hello, "m");
    let departed =
        |reason| Diagnosis::Departed(Departure::new(ServerId::from_u64(1), address(1), reason));
    let all = [
        Diagnosis::Incompatible("m".into()),
        Diagnosis::NoServers { set_name: None },
        Diagnosis::NoServers { set_name: Some("rs".into()) },
        Diagnosis::NotAnsweredYet,
        Diagnosis::WrongSetName { address: address(1), error: error() },
        Diagnosis::Unresolvable { addresses: addresses(), advertised: true },
        Diagnosis::NothingReachable { addresses: addresses(), timed_out: true },
        Diagnosis::ProxyFailed { failures: vec![(address(1), error())] },
        Diagnosis::TlsFailed { failures: vec![(address(1), error())] },
        Diagnosis::AddressMismatch { address: address(1), me: address(2), error: None },
        Diagnosis::TlsExpected { addresses: addresses() },
        Diagnosis::NotMongoDb { failures: vec![(address(1), error())] },
        Diagnosis::Refuses { address: address(1), server_type: RsSecondary },
        Diagnosis::Refuses { address: address(1), server_type: RsArbiter },
        Diagnosis::NotInitiated { addresses: addresses() },
        Diagnosis::NoMatchingTags,
        Diagnosis::AllStale,
        Diagnosis::StalenessUnknown,
        departed(DepartureReason::NotListed { primary: address(2) }),
        departed(DepartureReason::OneOfSeveralSeeds),
        departed(DepartureReason::HostsChanged),
    ];
    for (index, diagnosis) in all.iter().enumerate() {
        assert!(!diagnosis.to_string().is_empty());
        let others = all.iter().skip(index + 1);
        let mut same = others.filter(|other| other.remedy() == diagnosis.remedy());
        assert_eq!(same.next(), None, "{diagnosis}");
    }
}
