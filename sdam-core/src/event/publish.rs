use core::fmt::Debug;

use super::{EventKind, EventName};
use crate::time::Instant;

/// A destination for the events of pools and of all other publishers except the topology.
///
/// # Contract
///
/// Both methods may be called while locks are held, including the topology's. They take constant
/// time, do not block and do not call a sink.
pub trait EventPublisher: Send + Sync + Debug {
    /// Returns whether an event with this name would be delivered. If not, its payload need not be
    /// built.
    fn wants(&self, name: EventName) -> bool;

    /// Publishes an event that happened at `at`. Does nothing if events with its name are not
    /// wanted.
    fn publish(&self, at: Instant, kind: EventKind);
}

/// A destination that discards all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventPublisher for NoEvents {
    fn wants(&self, _: EventName) -> bool {
        false
    }

    fn publish(&self, _: Instant, _: EventKind) {}
}
