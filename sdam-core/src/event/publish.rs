use core::fmt::Debug;

use super::{EventKind, EventName};
use crate::time::Instant;

/// A destination of events, for pools and other parts beside the topology that publish some.
///
/// # Contract
///
/// Both methods may be called while locks are held, also that of the topology. They take constant
/// time, do not block and call no sink.
pub trait Publish: Send + Sync + Debug {
    /// Returns whether an event of this name would be delivered. Without interest, its payload need
    /// not be built.
    fn wants(&self, name: EventName) -> bool;

    /// Publishes an event that happened at `at`. Does nothing if events of its name are not wanted.
    fn publish(&self, at: Instant, kind: EventKind);
}

/// A destination that wants no event.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl Publish for NoEvents {
    fn wants(&self, _: EventName) -> bool {
        false
    }

    fn publish(&self, _: Instant, _: EventKind) {}
}
