//! Members that leave, come back and restart.

use sdam::{EventKind, ServerType};
use sdam_core::ids::TopologyVersion;

use crate::{
    failover::{is_complete, observe},
    runtime::replica_set,
};

/// D-5, D-32: a removed member is closed; if it returns, it gets a new server id.
#[test]
fn a_removed_member_is_closed_and_opened_again_when_it_returns() {
    let Some(set) = replica_set() else { return };
    let seed = set.primary().unwrap();
    let (observer, mark) = observe(&set, seed, "");
    let removed = set.secondaries()[0];
    let host = set.member(removed).host();
    set.remove(removed).unwrap();
    let (old, closed) = observer.wait_for("the member to be closed", mark, |kind| match kind {
        EventKind::ServerClosed {
            server, address, ..
        } => (address.as_str() == host).then_some(*server),
        _ => None,
    });
    observer.wait_for_topology("a topology without it", closed, |topology| {
        topology.servers().len() == 2
    });
    set.add_back(removed).unwrap();
    let (new, opened) = observer.wait_for("the member to be opened", closed, |kind| match kind {
        EventKind::ServerOpening { server, address } => {
            (address.as_str() == host).then_some(*server)
        }
        _ => None,
    });
    assert_ne!(old, new);
    observer.wait_for_topology("the whole set again", opened, is_complete);
    observer.finish();
}

/// F-38, M-33: a restarted process counts from the beginning, and its replies are accepted.
#[test]
fn replies_of_a_restarted_member_with_a_lower_topology_version_are_accepted() {
    let Some(set) = replica_set() else { return };
    let seed = set.primary().unwrap();
    let (observer, mark) = observe(&set, seed, "");
    let restarted = set.secondaries()[0];
    let host = set.member(restarted).host();
    let version = |observer: &crate::observer::Observer| -> Option<TopologyVersion> {
        let snapshot = observer.topology.snapshot();
        let servers = snapshot.description().servers();
        servers
            .iter()
            .find(|server| server.address.as_str() == host)?
            .topology_version
    };
    let before = version(&observer);
    set.member(restarted).kill().unwrap();
    let lost = observer.wait_for_server(mark, &host, ServerType::Unknown);
    set.member(restarted).restart().unwrap();
    observer.wait_for_server(lost, &host, ServerType::RsSecondary);
    let after = version(&observer);
    if let (Some(before), Some(after)) = (before, after) {
        assert_ne!(before.process_id, after.process_id);
    } else {
        assert_eq!(
            before, after,
            "only servers before 4.4 have no topology version"
        );
    }
    observer.wait_for("its pool to be ready again", lost, |kind| match kind {
        EventKind::PoolReady { address, .. } => (address.as_str() == host).then_some(()),
        _ => None,
    });
    observer.finish();
}
