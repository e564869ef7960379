//! Event sinks: the trait, combinators, and the set of events that a sink receives.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sdam_core::event::{Event, EventName};

mod fanout;
mod function;
mod interest;
mod panicked;
#[cfg(test)]
mod tests;

pub use fanout::Fanout;
pub use function::{SinkFn, sink_fn};
pub use interest::Interest;
pub use panicked::SinkPanicked;
pub(crate) use panicked::call;

/// Receives the events of a topology.
///
/// # Contract
///
/// - [`emit`](Self::emit) is called in the order of the changes, never concurrently for one
///   topology, and without holding a lock of the engine: it may select servers, close the topology
///   or block. Blocking delays only later events.
/// - Every [`Event::seq`] is one greater than the previous one, because only events in the sink's
///   interest are counted. Behind an adapter that drops events ([`Fanout`],
///   [`channel::bounded`](crate::channel::bounded)), the numbers increase with gaps.
/// - `TopologyClosed` is the last event, if the sink is interested in it. Every started heartbeat
///   ends before it.
/// - A sink that panics is not called again; see
///   [`EventQueue::sink_failed`](crate::queue::EventQueue::sink_failed).
/// - [`interest`](Self::interest) is called once, before the first event.
///
/// # Example
///
/// A sink that stores the current primary and counts its changes:
///
/// ```
/// use std::sync::Mutex;
///
/// use sdam_core::{address::ServerAddress, event::{Event, EventKind, EventName}};
/// use sdam_events::sink::{EventSink, Interest};
///
/// #[derive(Debug, Default)]
/// struct Primary(Mutex<(Option<ServerAddress>, u32)>);
///
/// impl EventSink for Primary {
///     fn emit(&self, event: &Event) {
///         let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind else { return };
///         let mut seen = self.0.lock().unwrap();
///         let primary = new.primary().map(|server| server.address.clone());
///         if seen.0 != primary {
///             *seen = (primary, seen.1 + 1);
///         }
///     }
///
///     fn interest(&self) -> Interest {
///         EventName::TopologyDescriptionChanged.into()
///     }
/// }
/// # use std::sync::Arc;
/// # use sdam_core::{ids::{ObjectId, ServerId}, server::*, time::Instant, topology::*};
/// # let sink = Primary::default();
/// # let queue = sdam_events::queue::EventQueue::new(ObjectId::default(), sink.interest());
/// # let mut server =
/// #     ServerDescription::unknown(ServerId::from_u64(1), ServerAddress::new("a", 27017));
/// # server.server_type = ServerType::RsPrimary;
/// # let new = TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, [server]);
/// # queue.push(Instant::EPOCH, EventKind::TopologyDescriptionChanged {
/// #     previous: Arc::default(), new: Arc::new(new),
/// # });
/// # assert_eq!(queue.drain_now(&sink), 1);
/// # assert_eq!(sink.0.into_inner().unwrap(), (Some(ServerAddress::new("a", 27017)), 1));
/// ```
pub trait EventSink: Send + Sync + Debug + 'static {
    /// Handles `event`. To keep it, clone it, which is cheap.
    fn emit(&self, event: &Event);

    /// Returns the events that the sink receives. The payloads of other events are not even built.
    ///
    /// The default is [`Interest::SDAM`]. Events of server selection add a cost to every operation,
    /// so they are opt-in.
    fn interest(&self) -> Interest {
        Interest::SDAM
    }
}

macro_rules! pointers {
    ($($pointer:ident),*) => {$(
        impl<S: EventSink + ?Sized> EventSink for $pointer<S> {
            fn emit(&self, event: &Event) {
                (**self).emit(event);
            }

            fn interest(&self) -> Interest {
                (**self).interest()
            }
        }
    )*};
}

pointers!(Arc, Box);

/// Locks the state of a sink. Poisoning is ignored, because a sink that has panicked is not called
/// again.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
