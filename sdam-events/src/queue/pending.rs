use super::EventQueue;
use crate::sink::{EventSink, SinkPanicked};

/// A view of a topology's undelivered events, for metrics and health checks.
#[derive(Clone, Copy, Debug)]
pub struct PendingEvents<'q>(&'q EventQueue);

impl<'q> PendingEvents<'q> {
    /// Returns the number of undelivered events, see [`EventQueue::depth`].
    pub fn depth(&self) -> usize {
        self.0.depth()
    }

    /// Returns the approximate size of the undelivered events, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Returns the maximum depth so far, see [`EventQueue::high_water`].
    pub fn high_water(&self) -> usize {
        self.0.high_water()
    }

    /// Returns the number of dropped events, see [`EventQueue::dropped`].
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Returns the panic that ended delivery, if the sink has panicked.
    pub fn sink_failed(&self) -> Option<&'q SinkPanicked> {
        self.0.sink_failed()
    }

    /// Delivers the events to `sink` on this thread, and returns their number. Programs can use it
    /// to deliver the events that are left after the runtime has shut down. See
    /// [`EventQueue::drain_now`].
    pub fn deliver_now(&self, sink: &dyn EventSink) -> u64 {
        self.0.drain_now(sink)
    }
}

impl EventQueue {
    /// Returns a read-only view of the undelivered events.
    pub fn pending(&self) -> PendingEvents<'_> {
        PendingEvents(self)
    }
}
