//! Records the events of a topology, and waits for them.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use sdam::{Event, EventKind, EventSink, Interest};

/// The time limit of every wait, for a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Every event so far, and a condition variable to wait for more.
#[derive(Debug, Default)]
pub(crate) struct Record {
    events: Mutex<Vec<Event>>,
    grown: Condvar,
}

/// The sink that fills a [`Record`].
#[derive(Debug)]
pub(crate) struct Recorder {
    record: Arc<Record>,
    interest: Interest,
}

impl Recorder {
    pub(crate) fn new(record: &Arc<Record>, interest: Interest) -> Self {
        Self { record: Arc::clone(record), interest }
    }
}

impl EventSink for Recorder {
    fn emit(&self, event: &Event) {
        self.record.events.lock().unwrap().push(event.clone());
        self.record.grown.notify_all();
    }

    fn interest(&self) -> Interest {
        self.interest
    }
}

impl Record {
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
