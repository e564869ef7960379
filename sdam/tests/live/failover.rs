//! A set whose primary steps down, dies, or stops answering, and whose members leave and return.

use std::time::Instant;

use sdam_core::{
    ids::TopologyVersion,
    options::{Detector, Options},
};

use super::*;

/// Returns whether all three members are known and one of them is primary.
pub(crate) fn is_complete(topology: &TopologyDescription) -> bool {
    let count = |wanted| {
        let servers = topology.servers().iter();
        servers.filter(|server| server.server_type == wanted).count()
    };
    topology.topology_type() == TopologyType::ReplicaSetWithPrimary
        && count(ServerType::RsPrimary) == 1
        && count(ServerType::RsSecondary) == 2
}

/// Starts a topology with one member as its seed and waits until it knows the whole set.
fn observe(set: &ReplicaSet, seed: usize, options: &str) -> (Observer, usize) {
    let observer = Observer::start(&uri(set, seed, options));
    let (_, mark) = observer.wait_for_topology("the whole set", 0, is_complete);
    (observer, mark)
}

fn uri(set: &ReplicaSet, seed: usize, options: &str) -> String {
    let (host, name) = (set.member(seed).host(), set.name());
    format!("mongodb://{host}/?replicaSet={name}&heartbeatFrequencyMS=500{options}")
}

/// Waits for a primary other than `old`, and returns the mark after the event that announces it.
fn wait_for_another_primary(observer: &Observer, mark: usize, old: &str) -> usize {
    let (_, mark) = observer.wait_for_topology("another primary", mark, |topology| {
        let primary = topology.primary();
        primary.is_some_and(|server| server.address.as_str() != old)
    });
    mark
}

/// Waits until the pool of `host` is cleared; returns whether connections in use are interrupted.
fn wait_for_clear(observer: &Observer, mark: usize, host: &str) -> (bool, usize) {
    observer.wait_for("its pool to be cleared", mark, |kind| match kind {
        EventKind::PoolCleared { address, clear, .. } => {
            (address.as_str() == host).then_some(clear.interrupt_in_use)
        }
        _ => None,
    })
}

/// D-2: one member is enough to find all members. I-36: after a step-down, another member becomes
/// primary and no pool is cleared.
#[test]
#[ignore = "deep: real servers"]
fn the_whole_set_is_found_from_one_secondary_and_a_step_down_clears_no_pool() {
    let Some(set) = replica_set() else { return };
    let seed = set.secondaries()[0];
    let (observer, mark) = observe(&set, seed, "");
    let events = observer.events();
    let opened = events.iter().filter_map(|event| match &event.kind {
        EventKind::ServerOpening { address, .. } => Some(address.to_string()),
        _ => None,
    });
    let opened: Vec<_> = opened.collect();
    assert_eq!(opened.len(), 3);
    assert_eq!(opened[0], set.member(seed).host(), "the seed comes first");
    let selected = block_on(observer.topology.select(&Criteria::write())).unwrap();
    let primary = set.member(set.primary().unwrap()).host();
    assert_eq!(selected.address().as_str(), primary);
    drop(selected);

    let old = set.member(set.step_down().unwrap()).host();
    // The description that names the new primary may already contain the whole set, so the wait
    // starts with the event of that description.
    let mark = wait_for_another_primary(&observer, mark, &old);
    observer.wait_for_topology("the whole set again", mark - 1, is_complete);
    let is_clear = |(_, call): &(_, PoolCall)| matches!(call, PoolCall::Clear(_));
    let cleared = observer.pool_calls().iter().any(is_clear);
    assert!(!cleared, "the server kept its connections");
    observer.finish();
}

/// F-50, F-51: a dead primary becomes Unknown, its pool is cleared, and a check follows at once.
/// F-11, F-65: a silent server is detected by timeout, which interrupts the connections in use.
/// F-70: closing does not wait for silent servers.
#[test]
#[ignore = "deep: real servers"]
fn a_dead_primary_and_a_silent_one_are_replaced_and_closing_does_not_wait_for_them() {
    let Some(set) = replica_set() else { return };
    let (observer, mark) = observe(&set, 0, "&connectTimeoutMS=1000");
    let old = set.primary().unwrap();
    let host = set.member(old).host();
    set.member(old).kill().unwrap();
    let failed = observer.wait_for_server(mark, &host, ServerType::Unknown);
    let (interrupt, _) = wait_for_clear(&observer, failed, &host);
    assert!(!interrupt, "the socket broke, nothing timed out");
    let next = |kind: &EventKind| match kind {
        EventKind::ServerHeartbeatStarted(beat) => (beat.address.as_str() == host).then_some(()),
        _ => None,
    };
    observer.wait_for("the check that follows at once", failed, next);
    wait_for_another_primary(&observer, failed, &host);
    let selected = block_on(observer.topology.select(&Criteria::write())).unwrap();
    assert_ne!(selected.address().as_str(), host);
    drop(selected);
    set.member(old).restart().unwrap();
    let (_, mark) = observer.wait_for_topology("its return", failed, is_complete);

    let old = set.primary().unwrap();
    let host = set.member(old).host();
    set.member(old).sigstop().unwrap();
    let (interrupt, lost) = wait_for_clear(&observer, mark, &host);
    assert!(interrupt, "a timeout interrupts the connections in use");
    wait_for_another_primary(&observer, mark, &host);
    set.member(old).sigcont().unwrap();
    observer.wait_for_server(lost, &host, ServerType::RsSecondary);
    observer.finish();

    let (observer, _) = observe(&set, 0, "&connectTimeoutMS=0");
    set.members().for_each(|member| member.sigstop().unwrap());
    let before = Instant::now();
    observer.finish();
    assert!(before.elapsed() < Duration::from_secs(10));
    set.members().for_each(|member| member.sigcont().unwrap());
}

#[test]
#[ignore = "deep: real servers"]
fn a_frozen_primary_is_suspected_long_before_its_time_limit_and_until_it_answers() {
    let Some(set) = replica_set() else { return };
    let (observer, mark) = observe(&set, 0, "");
    let primary = set.primary().unwrap();
    let host = set.member(primary).host();
    set.member(primary).sigstop().unwrap();
    let (silence, mark) = observer.wait_for("a suspicion", mark, |kind| match kind {
        EventKind::ServerSuspected { address, silence, .. } => {
            (address.as_str() == host).then_some(*silence)
        }
        _ => None,
    });
    // A server is suspected no earlier than 1 s after its answer was due.
    assert!(silence >= Duration::from_secs(1), "{silence:?}");
    let snapshot = observer.topology.snapshot();
    let described = snapshot.server(&host.parse().unwrap()).unwrap();
    assert_eq!(described.description().server_type, ServerType::RsPrimary);
    drop(snapshot);
    set.member(primary).sigcont().unwrap();
    let (answered, _) = observer.wait_for("its end", mark, |kind| match kind {
        EventKind::ServerSuspicionEnded { address, answered, .. } => {
            (address.as_str() == host).then_some(*answered)
        }
        _ => None,
    });
    assert!(answered);
    observer.finish();
}

#[test]
#[ignore = "deep: real servers"]
fn a_detector_leaves_a_frozen_primary_and_another_one_is_found() {
    let Some(set) = replica_set() else { return };
    let primary = set.primary().unwrap();
    let mut options = Options::parse(&uri(&set, primary, "")).unwrap();
    options.detector = Some(Detector::PROBING);
    let observer = Observer::build(Host::start(), options, |builder| builder);
    let (_, mark) = observer.wait_for_topology("the whole set", 0, is_complete);
    let host = set.member(primary).host();
    set.member(primary).sigstop().unwrap();
    let (failure, _) = observer.wait_for("its loss", mark, |kind| match kind {
        EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
            (heartbeat.address.as_str() == host).then(|| failure.to_string())
        }
        _ => None,
    });
    assert!(failure.contains("not even to a ping"), "{failure}");
    let (interrupt, mark) = wait_for_clear(&observer, mark, &host);
    assert!(interrupt, "connections in use wait for a silent server");
    wait_for_another_primary(&observer, mark, &host);
    set.member(primary).sigcont().unwrap();
    observer.wait_for_server(mark, &host, ServerType::RsSecondary);
    observer.finish();
}

/// D-5, D-32: the server of a removed member is closed; if the member returns, it gets a new server
/// id. F-38, M-33: a restarted process begins a new topology version, and its replies are accepted.
#[test]
#[ignore = "deep: real servers"]
fn a_member_is_followed_through_its_removal_its_return_and_its_restart() {
    let Some(set) = replica_set() else { return };
    let (observer, mark) = observe(&set, set.primary().unwrap(), "");
    let changed = set.secondaries()[0];
    let host = set.member(changed).host();
    set.remove(changed).unwrap();
    let (old, closed) = observer.wait_for("the member to be closed", mark, |kind| match kind {
        EventKind::ServerClosed { server, address, .. } => {
            (address.as_str() == host).then_some(*server)
        }
        _ => None,
    });
    let without = |topology: &TopologyDescription| topology.servers().len() == 2;
    observer.wait_for_topology("a topology without it", closed, without);
    set.add_back(changed).unwrap();
    let (new, opened) = observer.wait_for("the member to be opened", closed, |kind| match kind {
        EventKind::ServerOpening { server, address } => {
            (address.as_str() == host).then_some(*server)
        }
        _ => None,
    });
    assert_ne!(old, new);
    let (_, mark) = observer.wait_for_topology("the whole set again", opened, is_complete);

    let version = || -> Option<TopologyVersion> {
        let snapshot = observer.topology.snapshot();
        let server = snapshot.server(&host.parse().unwrap());
        server.unwrap().description().topology_version
    };
    let before = version();
    set.member(changed).kill().unwrap();
    let lost = observer.wait_for_server(mark, &host, ServerType::Unknown);
    set.member(changed).restart().unwrap();
    observer.wait_for_server(lost, &host, ServerType::RsSecondary);
    // A restart changes the process id in the topology version, which servers before 4.4 do not
    // have.
    let processes = [before, version()].map(|version| version.map(|version| version.process_id));
    assert!(processes[0] != processes[1] || processes == [None; 2]);
    observer.wait_for("its pool to be ready again", lost, |kind| match kind {
        EventKind::PoolReady { address, .. } => (address.as_str() == host).then_some(()),
        _ => None,
    });
    observer.finish();
}
