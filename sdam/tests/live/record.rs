//! Records the events of a topology, and waits for them.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use sdam::{Event, EventKind, EventSink, Interest};
use sdam_events::sink::sink_fn;

/// The time limit of every wait, long enough for a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Every event so far, and a condition variable to wait for more.
#[derive(Debug, Default)]
pub(crate) struct Record {
    events: Mutex<Vec<Event>>,
    grown: Condvar,
}

impl Record {
    /// Returns a sink that records the events of `interest`.
    pub(crate) fn sink(self: &Arc<Self>, interest: Interest) -> impl EventSink + use<> {
        let record = Arc::clone(self);
        let sink = sink_fn(move |event| {
            record.events.lock().unwrap().push(event.clone());
            record.grown.notify_all();
        });
        sink.interested_in(interest)
    }

    /// Returns all events so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Waits for the first event at or after `mark` for which `find` returns a value. Returns the
    /// value and the mark after that event.
    pub(crate) fn wait_for<T>(
        &self,
        what: &str,
        mark: usize,
        find: impl Fn(&EventKind) -> Option<T>,
    ) -> (T, usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut events = self.events.lock().unwrap();
        let mut next = mark;
        loop {
            while let Some(event) = events.get(next) {
                next += 1;
                if let Some(found) = find(&event.kind) {
                    return (found, next);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "waited in vain for {what}; since then: {:#?}",
                brief(&events, mark)
            );
            events = self.grown.wait_timeout(events, left).unwrap().0;
        }
    }
}

fn brief(events: &[Event], mark: usize) -> Vec<String> {
    let line = |event: &Event| match &event.kind {
        EventKind::TopologyDescriptionChanged { new, .. } => format!("topology {new}"),
        EventKind::ServerDescriptionChanged { new, .. } => format!("server {new}"),
        kind => format!("{} {:?}", kind.name().as_str(), kind.address()),
    };
    events.iter().skip(mark).map(line).collect()
}
