use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};

use loom::{future::block_on, thread};
use sdam_events::sync::explore;
use sdam_select::criteria::Criteria;

use super::harness::{Harness, SharedHarness, Tasks, checked, member};
use crate::Topology;

/// A harness in which only the second check finds a primary. Unless that check is requested, a
/// monitor makes it after ten seconds, which never pass in a model.
fn harness() -> Harness {
    let harness =
        Harness::new(&[member("secondary", &["a:1"]), member("isWritablePrimary", &["a:1"])]);
    harness.tasks.begin();
    harness
}

#[test]
fn a_monitor_checks_again_when_a_selection_starts_to_wait() {
    // While a selection waits, the server is checked again (F-44).
    explore(2, || {
        let harness = harness();
        block_on(harness.topology.select(&Criteria::write())).unwrap();
        assert_eq!(harness.topology.waiters(), 0);
    });
}

#[test]
fn a_monitor_checks_again_for_a_second_selection_after_the_first_was_dropped() {
    // The server is checked again for the remaining selection (F-44, L-61).
    explore(1, || {
        let harness = harness();
        let topology = harness.topology.clone();
        let dropped = thread::spawn(move || {
            let criteria = Criteria::write();
            let selection = pin!(topology.select(&criteria));
            // The selection is dropped after its first poll.
            let _ = selection.poll(&mut Context::from_waker(Waker::noop()));
        });
        block_on(harness.topology.select(&Criteria::write())).unwrap();
        dropped.join().unwrap();
        assert_eq!(harness.topology.waiters(), 0);
    });
}

/// Adds a server while a selection starts to wait. Either the new task sees that a selection waits,
/// or the selection makes it look again.
fn add_beside_a_selection(one: &Topology, other: &Topology, tasks: &Tasks) {
    let base = one.shared().watching();
    tasks.observe(base);
    let adds = {
        let one = one.clone();
        thread::spawn(move || checked(&one, &member("secondary", &["a:1", "b:1"])))
    };
    let criteria = Criteria::write();
    let selection = pin!(other.select(&criteria));
    assert!(selection.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    adds.join().unwrap();
    let snapshot = base.published.load();
    let [_, added] = &*snapshot.servers else {
        panic!("no server is added");
    };
    assert!(tasks.saw_waiter() || added.watched.orders.take().look);
}

#[test]
fn a_server_that_is_added_when_a_selection_starts_to_wait_is_checked_for_it() {
    // Each server is checked again while a selection waits (F-44).
    explore(None, || {
        let harness = Harness::new(&[]);
        add_beside_a_selection(&harness.topology, &harness.topology, &harness.tasks);
    });
}

#[test]
fn a_server_that_is_added_when_a_selection_of_another_handle_starts_to_wait_is_checked_for_it() {
    // The task of the new server runs before the other handle knows the server.
    explore(2, || {
        let harness = SharedHarness::new();
        let [one, other] = [(); 2].map(|()| harness.open());
        add_beside_a_selection(&one, &other, &harness.tasks);
    });
}
