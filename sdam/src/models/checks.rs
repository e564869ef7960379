use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};

use loom::{future::block_on, thread};
use sdam_events::sync::explore;
use sdam_select::criteria::Criteria;

use super::harness::{Harness, member};

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
