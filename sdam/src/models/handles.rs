use std::sync::Arc;

use loom::thread;
use sdam_core::topology::TopologyType;
use sdam_events::sync::explore;

use super::harness::{SharedHarness, checked, member};
use crate::Topology;

/// Returns whether the deployment behind a handle is closed.
fn is_closed(handle: &Topology) -> bool {
    handle.shared().watching().published.load().closed
}

fn topology_type(handle: &Topology) -> TopologyType {
    handle.snapshot().description().topology_type()
}

#[test]
fn of_two_handles_that_leave_at_once_the_last_closes_the_deployment() {
    explore(None, || {
        let harness = SharedHarness::new();
        let [one, other] = [(); 2].map(|()| harness.open());
        let base = Arc::clone(one.shared().watching());
        assert!(Arc::ptr_eq(&base, other.shared().watching()));
        let leaves = thread::spawn(move || drop(one));
        drop(other);
        leaves.join().unwrap();
        assert!(base.published.load().closed);
    });
}

#[test]
fn a_handle_that_opens_while_the_last_one_leaves_has_an_open_deployment() {
    explore(None, || {
        let harness = SharedHarness::new();
        let first = harness.open();
        let leaves = thread::spawn(move || drop(first));
        let second = harness.open();
        leaves.join().unwrap();
        assert!(!is_closed(&second));
        assert!(!second.snapshot().is_closed());
    });
}

#[test]
fn a_handle_that_opens_beside_a_change_sees_it() {
    explore(None, || {
        let harness = SharedHarness::new();
        let first = harness.open();
        let changes = {
            let first = first.clone();
            thread::spawn(move || checked(&first, &member("isWritablePrimary", &["a:1"])))
        };
        let second = harness.open();
        changes.join().unwrap();
        for handle in [&first, &second] {
            assert_eq!(topology_type(handle), TopologyType::ReplicaSetWithPrimary);
        }
    });
}

#[test]
fn handles_follow_concurrent_changes_in_the_order_of_the_deployment() {
    explore(None, || {
        let harness = SharedHarness::new();
        let [one, other] = [(); 2].map(|()| harness.open());
        let changes = {
            let one = one.clone();
            thread::spawn(move || checked(&one, &member("isWritablePrimary", &["a:1"])))
        };
        checked(&other, &member("secondary", &["a:1"]));
        changes.join().unwrap();
        let newest = one.shared().watching().published.load_full();
        for handle in [&one, &other] {
            assert_eq!(handle.snapshot().description(), newest.description());
        }
    });
}
