use std::sync::{Arc, Mutex};

use bson::doc;
use loom::{future::block_on, thread};
use sdam_core::{
    event::{Event, EventName},
    ids::Generation,
};
use sdam_events::{
    sink::{EventSink, Interest},
    sync::explore,
};
use sdam_select::criteria::Criteria;

use super::{Harness, bytes, member};

/// A sink that records the names of all events.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<Vec<EventName>>>);

impl Names {
    /// Checks that there are as many `end` as `start` events, and that `TopologyClosed` is the
    /// last event.
    fn check(&self, start: EventName, end: EventName) {
        let names = self.0.lock().unwrap();
        let count = |name| names.iter().filter(|one| **one == name).count();
        assert_eq!(names.last(), Some(&EventName::TopologyClosed));
        assert_eq!(count(start), count(end));
    }
}

impl EventSink for Names {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.kind.name());
    }

    fn interest(&self) -> Interest {
        Interest::SDAM.union(Interest::SELECTION)
    }
}

#[test]
fn closing_waits_for_the_last_event_and_for_every_heartbeat_to_end() {
    // Every started heartbeat ends, and TopologyClosed is the last event (J-13, I10).
    explore(2, || {
        let names = Names::default();
        let harness = Harness::with_sink(&[], names.clone());
        harness.tasks.begin();
        block_on(harness.topology.close());
        harness.tasks.end();
        names.check(EventName::ServerHeartbeatStarted, EventName::ServerHeartbeatFailed);
    });
}

#[test]
fn the_task_of_a_server_without_a_connection_ends_when_the_topology_is_closed() {
    // No order to disconnect wakes this task.
    explore(2, || {
        let harness = Harness::new(&[doc! { "ok": 0 }]);
        harness.tasks.begin();
        block_on(harness.topology.close());
        harness.tasks.end();
    });
}

#[test]
fn every_selection_ends_once_and_before_the_topology_closed_event() {
    // Every started selection succeeds or fails exactly once (K-7).
    explore(1, || {
        let names = Names::default();
        let harness = Harness::with_sink(&[], names.clone());
        let topology = harness.topology.clone();
        harness.tasks.begin();
        let selection = thread::spawn(move || {
            block_on(topology.select(&Criteria::write())).unwrap_err();
        });
        block_on(harness.topology.close());
        selection.join().unwrap();
        names.check(EventName::ServerSelectionStarted, EventName::ServerSelectionFailed);
    });
}

#[test]
fn no_monitor_starts_after_close_has_returned() {
    // A pooled connection's handshake may add a new member while the topology is being closed.
    explore(2, || {
        let harness = Harness::new(&[]);
        harness.checked(&member("isWritablePrimary", &["a:1"]));
        let (topology, seed) = (harness.topology.clone(), harness.seed());
        harness.tasks.begin();
        thread::spawn(move || {
            let reply = bytes(&member("isWritablePrimary", &["a:1", "b:1"]));
            let _ = topology.reporter(seed).handle_handshake(Generation::FIRST, &*reply);
        });
        block_on(harness.topology.close());
        harness.tasks.end();
    });
}

#[test]
fn the_event_queue_is_closed_when_a_shutdown_and_the_drop_of_the_monitors_overlap() {
    explore(3, || {
        let names = Names::default();
        let harness = Harness::with_sink(&[], names.clone());
        let monitors = harness.tasks.take();
        assert!(!monitors.is_empty());
        // Simulates the shutdown of the runtime.
        let runtime = thread::spawn(move || drop(monitors));
        harness.topology.engine().shut_down();
        runtime.join().unwrap();
        // Whatever the sink's task has left.
        harness.topology.events().deliver_now(&names);
        names.check(EventName::ServerHeartbeatStarted, EventName::ServerHeartbeatFailed);
    });
}

#[test]
fn a_waiting_selection_fails_when_the_runtime_drops_the_monitors() {
    explore(2, || {
        let harness = Harness::new(&[]);
        let monitors = harness.tasks.take();
        let runtime = thread::spawn(move || drop(monitors));
        // This call would block forever if the selection were not woken a last time.
        let error = block_on(harness.topology.select(&Criteria::write())).unwrap_err();
        assert!(error.is_runtime_shut_down());
        runtime.join().unwrap();
    });
}
