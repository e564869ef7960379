use std::fmt;

use super::{Event, EventSink, Interest};

/// A sink that forwards only some events.
///
/// ```
/// use sdam_core::address::ServerAddress;
/// use sdam_events::sink::{EventSink, Filter, Interest, sink_fn};
///
/// let show = sink_fn(|event| println!("{:?}", event.kind));
/// // Other events are not even pushed to the queue.
/// let checks = Filter::names(show, Interest::HEARTBEATS);
/// assert_eq!(checks.interest(), Interest::HEARTBEATS);
/// // Keep only the events about one server.
/// let server = ServerAddress::new("a", 27017);
/// let checks = Filter::matching(checks, move |event| event.kind.address() == Some(&server));
/// # drop(checks);
/// ```
pub struct Filter<S, F = fn(&Event) -> bool> {
    sink: S,
    names: Interest,
    keep: F,
}

impl<S: EventSink> Filter<S> {
    /// Creates a filter that forwards the events in `names` that `sink` is interested in.
    pub fn names(sink: S, names: Interest) -> Self {
        Self { sink, names, keep: |_| true }
    }
}

impl<S: EventSink, F: Fn(&Event) -> bool + Send + Sync + 'static> Filter<S, F> {
    /// Creates a filter that forwards the events for which `keep` returns true.
    ///
    /// `keep` decides about each event separately, so it may keep the start of a heartbeat without
    /// its end.
    pub fn matching(sink: S, keep: F) -> Self {
        Self { sink, names: Interest::ALL, keep }
    }
}

impl<S: EventSink, F: Fn(&Event) -> bool + Send + Sync + 'static> EventSink for Filter<S, F> {
    fn emit(&self, event: &Event) {
        if self.names.contains(event.kind.name()) && (self.keep)(event) {
            self.sink.emit(event);
        }
    }

    fn interest(&self) -> Interest {
        self.names.intersection(self.sink.interest())
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Filter<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("sink", &self.sink)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
