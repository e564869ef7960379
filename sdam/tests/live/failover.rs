//! A primary that steps down, dies, or stops answering.

use std::time::Duration;

use sdam::{Criteria, EventKind, ServerType, TopologyDescription, TopologyType};
use sdam_live::ReplicaSet;
use sdam_sim::oracle::PoolCall;

use crate::{observer::Observer, runtime::replica_set};

/// Returns whether all three members are known and one of them is primary.
pub(crate) fn is_complete(topology: &TopologyDescription) -> bool {
    let count = |wanted| {
        topology
            .servers()
            .iter()
            .filter(|server| server.server_type == wanted)
            .count()
    };
    topology.topology_type() == TopologyType::ReplicaSetWithPrimary
        && count(ServerType::RsPrimary) == 1
        && count(ServerType::RsSecondary) == 2
}

/// Starts a topology with one member as its seed and waits until it knows the whole set.
pub(crate) fn observe(set: &ReplicaSet, seed: usize, options: &str) -> (Observer, usize) {
    let uri = format!(
        "mongodb://{}/?replicaSet={}&heartbeatFrequencyMS=500{options}",
        set.member(seed).host(),
        set.name(),
    );
    let observer = Observer::start(&uri);
    let (_, mark) = observer.wait_for_topology("the whole set", 0, is_complete);
    (observer, mark)
}

fn primary(topology: &TopologyDescription) -> String {
    topology
        .primary()
        .map(|server| server.address.to_string())
        .unwrap()
}

/// D-2: one member is enough to find all.
#[test]
fn the_whole_set_is_found_from_one_secondary() {
    let Some(set) = replica_set() else { return };
    let seed = set.secondaries()[0];
    let (observer, _) = observe(&set, seed, "");
    let events = observer.events();
    let opened: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ServerOpening { address, .. } => Some(address.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(opened.len(), 3);
    assert_eq!(opened[0], set.member(seed).host(), "the seed comes first");
    let selected =
        futures::executor::block_on(observer.topology.select(&Criteria::write())).unwrap();
    assert_eq!(
        selected.address().as_str(),
        set.member(set.primary().unwrap()).host()
    );
    observer.finish();
}

/// A step-down moves the primary without any pool being cleared (I-36).
#[test]
fn a_step_down_is_followed_without_clearing_pools() {
    let Some(set) = replica_set() else { return };
    let (observer, mark) = observe(&set, 0, "");
    let old = set.step_down().unwrap();
    let old = set.member(old).host();
    // Another primary may already be elected between two polls.
    let (found, mark) = observer.wait_for_topology("another primary", mark, |topology| {
        topology
            .primary()
            .is_some_and(|server| server.address.as_str() != old)
    });
    assert_ne!(primary(&found), old);
    observer.wait_for_topology("the whole set again", mark - 1, is_complete);
    let cleared = observer
        .pool_calls()
        .iter()
        .any(|(_, call)| matches!(call, PoolCall::Clear(_)));
    assert!(!cleared, "the server kept its connections");
    observer.finish();
}

/// F-50, F-51: a dead primary becomes Unknown, its pool is cleared, and a check follows at once.
#[test]
fn a_killed_primary_is_replaced_and_its_pool_cleared() {
    let Some(set) = replica_set() else { return };
    let (observer, mark) = observe(&set, 0, "");
    let old = set.primary().unwrap();
    let host = set.member(old).host();
    set.member(old).kill().unwrap();
    let failed = observer.wait_for_server(mark, &host, ServerType::Unknown);
    let (interrupt, _) = observer.wait_for("its pool to be cleared", failed, |kind| match kind {
        EventKind::PoolCleared { address, clear, .. } => {
            (address.as_str() == host).then_some(clear.interrupt_in_use)
        }
        _ => None,
    });
    assert!(!interrupt, "the socket broke, nothing timed out");
    observer.wait_for(
        "the check that follows at once",
        failed,
        |kind| match kind {
            EventKind::ServerHeartbeatStarted(beat) => {
                (beat.address.as_str() == host).then_some(())
            }
            _ => None,
        },
    );
    observer.wait_for_topology("another primary", failed, |topology| {
        topology
            .primary()
            .is_some_and(|server| server.address.as_str() != host)
    });
    let selected =
        futures::executor::block_on(observer.topology.select(&Criteria::write())).unwrap();
    assert_ne!(selected.address().as_str(), host);
    set.member(old).restart().unwrap();
    observer.wait_for_topology("the old primary's return", failed, is_complete);
    observer.finish();
}

/// F-11, F-65: a silent server is detected by timeout, which interrupts the connections in use.
#[test]
fn a_silent_primary_is_detected_by_timeout_and_becomes_a_secondary() {
    let Some(set) = replica_set() else { return };
    let (observer, mark) = observe(&set, 0, "&connectTimeoutMS=1000");
    let old = set.primary().unwrap();
    let host = set.member(old).host();
    set.member(old).sigstop().unwrap();
    let (interrupt, lost) = observer.wait_for("its pool to be cleared", mark, |kind| match kind {
        EventKind::PoolCleared { address, clear, .. } => {
            (address.as_str() == host).then_some(clear.interrupt_in_use)
        }
        _ => None,
    });
    assert!(interrupt, "a timeout interrupts the connections in use");
    observer.wait_for_topology("another primary", mark, |topology| {
        topology
            .primary()
            .is_some_and(|server| server.address.as_str() != host)
    });
    set.member(old).sigcont().unwrap();
    observer.wait_for_server(lost, &host, ServerType::RsSecondary);
    observer.finish();
}

/// F-70: closing does not wait for silent servers.
#[test]
fn closing_interrupts_blocked_reads_at_once() {
    let Some(set) = replica_set() else { return };
    let (observer, _) = observe(&set, 0, "&connectTimeoutMS=0");
    let members: Vec<_> = set.members().collect();
    for member in &members {
        member.sigstop().unwrap();
    }
    let before = std::time::Instant::now();
    observer.finish();
    assert!(before.elapsed() < Duration::from_secs(10));
    for member in &members {
        member.sigcont().unwrap();
    }
}
