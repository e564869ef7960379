use std::{string::ToString, vec, vec::Vec};

use proptest::prelude::*;
use sdam_core::{
    error::{ErrorKind, Stage},
    server::ServerType::{RsArbiter, RsOther, RsPrimary, RsSecondary, Unknown},
    time::Instant,
    topology::TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary},
};

use super::*;
use crate::{
    algorithm::{latency_window, suitable},
    candidate::Candidates,
    testing::{address, any_criteria, any_topology, failed, server, tags, topology, with_rtt},
};

fn read(preference: ReadPreference) -> Criteria {
    Criteria::read(preference).unwrap()
}

fn mode(mode: ReadMode) -> ReadPreference {
    ReadPreference::new(mode)
}

fn secondary(number: u64, rtt: u64, dc: &str, lag: i64) -> ServerDescription {
    let mut server = with_rtt(server(number, RsSecondary), rtt);
    server.tags = tags(&[("dc", dc)]);
    server.last_update_time = Some(Instant::from_millis(1_000_000));
    server.last_write_date = Some(1_000_000 - lag);
    server
}

/// Returns a topology with a primary, secondaries with different latencies, tags and lags, and a
/// server that is down.
fn members() -> TopologyDescription {
    let mut primary = secondary(1, 5, "ny", 0);
    primary.server_type = RsPrimary;
    let down = failed(5, ErrorKind::Network, Stage::Connect, "refused");
    let servers = [
        primary,
        secondary(2, 6, "ny", 1_000),
        secondary(3, 60, "ny", 1_000),
        secondary(4, 6, "la", 200_000),
        down,
    ];
    topology(ReplicaSetWithPrimary, servers)
}

/// Returns the verdict on the server with this number, as a string.
fn explanation_of(
    topology: &TopologyDescription,
    criteria: &Criteria,
    number: u64,
) -> std::string::String {
    let explanation = explain(topology, &Settings::default(), criteria);
    let at = address(number);
    let mut servers = explanation.servers.iter();
    let server = servers.find(|server| server.address == at).unwrap();
    let text = server.to_string();
    text.split_once(") ").unwrap().1.into()
}

#[test]
fn every_rejection_has_the_values_that_were_compared() {
    let topology = members();
    let limit = Duration::from_secs(90);
    let ny = || vec![tags(&[("dc", "ny")])];
    let check = |preference: ReadPreference, number, text| {
        assert_eq!(explanation_of(&topology, &read(preference), number), text);
    };
    check(mode(ReadMode::Primary), 1, "is eligible at 5 ms");
    let text = "answers in 60 ms, more than 15 ms slower than the fastest (6 ms)";
    check(mode(ReadMode::Secondary), 3, text);
    check(mode(ReadMode::Secondary), 5, "is not available: network error at connect: refused");
    let text = "has the tags {dc: la}, but {dc: ny} is the first tag set that some server matches";
    check(mode(ReadMode::Nearest).with_tag_sets(ny()), 4, text);
    check(
        mode(ReadMode::Nearest).with_tag_sets(vec![tags(&[("dc", "sf")])]),
        4,
        "has the tags {dc: la}, and no tag set matches any server",
    );
    let text = "lags 210.000 s behind, which is more than 90 s";
    check(mode(ReadMode::Nearest).with_max_staleness(limit), 4, text);
    check(mode(ReadMode::PrimaryPreferred), 2, "is only used when there is no suitable RSPrimary");
    let text = "is only used when there is no suitable RSSecondary";
    check(mode(ReadMode::SecondaryPreferred), 1, text);
    // The primary is the fallback because no secondary is eligible. Each secondary is rejected for
    // a different reason.
    let fallback = mode(ReadMode::SecondaryPreferred).with_tag_sets(vec![tags(&[("dc", "sf")])]);
    check(fallback.clone(), 1, "is eligible at 5 ms");
    check(fallback, 2, "has the tags {dc: ny}, and no tag set matches any server");
}

#[test]
fn a_server_of_the_wrong_type_is_rejected_with_the_required_type() {
    let check = |topology_type, server_type, criteria: &Criteria, text| {
        let topology = topology(topology_type, [server(1, server_type)]);
        assert_eq!(explanation_of(&topology, criteria, 1), text, "{topology_type}");
    };
    let (write, set) = (Criteria::write(), ReplicaSetWithPrimary);
    let read = |of| read(mode(of));
    check(set, RsSecondary, &write, "is not a primary");
    check(ReplicaSetNoPrimary, RsSecondary, &write, "is not a primary");
    check(set, RsSecondary, &read(ReadMode::Primary), "is not a primary");
    check(set, RsPrimary, &read(ReadMode::Secondary), "is not a secondary");
    for of in [ReadMode::Nearest, ReadMode::PrimaryPreferred, ReadMode::SecondaryPreferred] {
        let arbiter = "is not a primary or a secondary: it is an arbiter, which holds no data";
        check(set, RsArbiter, &read(of), arbiter);
        let recovering = "is not a primary or a secondary: it is starting, recovering, rolling back \
                          or hidden";
        check(set, RsOther, &read(of), recovering);
    }
    check(TopologyType::Sharded, RsPrimary, &write, "is not a mongos");
}

#[test]
fn deprioritized_servers_and_servers_dropped_by_selectors_are_explained() {
    // Servers are deprioritized by address (L-45, L-50).
    let topology = members();
    let nearest = read(mode(ReadMode::Nearest));
    let retry = nearest.clone().with_deprioritized([address(2), address(5)]);
    let text = "is deprioritized, and other servers are suitable";
    assert_eq!(explanation_of(&topology, &retry, 2), text);
    assert!(explanation_of(&topology, &retry, 5).starts_with("is not available"));
    let last = |suitable: &mut Candidates<'_>| suitable.retain(|candidate| candidate.index > 2);
    let selecting = nearest.with_selector(Arc::new(last));
    assert_eq!(explanation_of(&topology, &selecting, 1), "was dropped by a server selector");
    assert_eq!(explanation_of(&topology, &selecting, 4), "is eligible at 6 ms");
}

#[test]
fn reasons_that_concern_the_whole_topology_come_first() {
    let check = |topology: &TopologyDescription, criteria: &Criteria, text| {
        let explanation = explain(topology, &Settings::default(), criteria);
        assert_eq!(explanation.to_string(), text);
        assert_eq!(explanation.eligible().count(), 0);
    };
    let write = Criteria::write();
    let text = "write operation on ReplicaSetNoPrimary: there are no servers";
    check(&topology(ReplicaSetNoPrimary, []), &write, text);
    check(
        &topology(TopologyType::Unknown, [server(1, Unknown)]),
        &write,
        "write operation on Unknown: no server has been identified yet; s01:27017 (Unknown) has not \
         answered yet",
    );
    let limited = mode(ReadMode::Nearest).with_max_staleness(Duration::from_secs(30));
    let explanation = explain(&members(), &Settings::default(), &read(limited));
    assert!(matches!(explanation.refusal, Some(Refusal::Criteria(_))));
    let mut verdicts = explanation.servers.iter().map(|server| &server.verdict);
    assert!(verdicts.all(|verdict| *verdict == Verdict::NotConsidered));
}

#[test]
fn the_long_form_has_a_line_for_each_server() {
    let explanation = explain(&members(), &Settings::default(), &Criteria::write());
    let long = std::format!("{explanation:#}");
    let lines: Vec<_> = long.lines().collect();
    assert_eq!(lines.len(), 6, "{long}");
    assert_eq!(lines[0], "write operation on ReplicaSetWithPrimary:");
    assert_eq!(lines[1], "  s01:27017 (RSPrimary) is eligible at 5 ms");
    assert_eq!(explanation.to_string().lines().count(), 1);
}

proptest! {
    #[test]
    fn explanations_agree_with_selection(topology in any_topology(), criteria in any_criteria()) {
        let settings = Settings::default();
        let explanation = explain(&topology, &settings, &criteria);
        let addresses = |servers: &mut dyn Iterator<Item = &ExplainedServer>| -> Vec<_> {
            servers.map(|server| server.address.clone()).collect()
        };
        let eligible = addresses(&mut explanation.servers.iter().filter(|it| it.is_eligible()));
        let slow = |server: &&ExplainedServer| {
            matches!(server.verdict, Verdict::Rejected(Rejection::Latency { .. }))
        };
        let found = addresses(
            &mut explanation.servers.iter().filter(|it| it.is_eligible() || slow(it)),
        );
        match suitable(&topology, &settings, &criteria) {
            Err(error) => {
                prop_assert_eq!(explanation.refusal, Some(Refusal::Criteria(error)));
                prop_assert!(found.is_empty());
            }
            Ok(suitable) => {
                let window = latency_window(&suitable, settings.local_threshold);
                let names = |candidates: &Candidates<'_>| -> Vec<_> {
                    candidates.iter().map(|candidate| candidate.address.clone()).collect()
                };
                prop_assert_eq!(found, names(&suitable));
                prop_assert_eq!(eligible, names(&window));
            }
        }
    }
}
