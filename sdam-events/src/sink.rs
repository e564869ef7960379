//! Event sinks: the trait, combinators, and the set of events that a sink receives.

use std::{
    any::Any,
    fmt::{self, Debug},
    mem,
    ops::BitOr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use sdam_core::event::{Event, EventName};

#[cfg(test)]
mod tests;

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
    /// Handles `event`. A sink that keeps the event clones it, which is cheap.
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

/// A set of event names.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Interest(u64);

impl Interest {
    /// No event.
    pub const NONE: Self = Self(0);

    /// The events about topology and servers: openings, description changes, closings, ignored
    /// members, `TopologyEmptied`, `ServerUnusable`, suspicions and `EventsDropped`.
    pub const DESCRIPTIONS: Self = Self::of(&[
        EventName::TopologyOpening,
        EventName::TopologyDescriptionChanged,
        EventName::TopologyClosed,
        EventName::ServerOpening,
        EventName::ServerDescriptionChanged,
        EventName::ServerClosed,
        EventName::MembersIgnored,
        EventName::TopologyEmptied,
        EventName::ServerUnusable,
        EventName::ServerSuspected,
        EventName::ServerSuspicionEnded,
        EventName::EventsDropped,
    ]);

    /// The three events about checks (heartbeats).
    pub const HEARTBEATS: Self = Self::of(&[
        EventName::ServerHeartbeatStarted,
        EventName::ServerHeartbeatSucceeded,
        EventName::ServerHeartbeatFailed,
    ]);

    /// Warnings about options, which are published once the topology has opened, and warnings about
    /// look-ups of its SRV record.
    pub const WARNINGS: Self = Self::of(&[
        EventName::ConfigWarning,
        EventName::SrvHostsIgnored,
        EventName::SrvLookupFailed,
    ]);

    /// The events of the SDAM Logging and Monitoring specification, and those specific to sdam:
    /// ignored members, emptied topologies, unusable and suspected servers, dropped events,
    /// warnings about options and SRV records.
    pub const SDAM: Self = Self::DESCRIPTIONS.union(Self::HEARTBEATS).union(Self::WARNINGS);

    /// The topology's commands to connection pools: the part of [`POOLS`](Self::POOLS) that does
    /// not slow down operations.
    pub const POOL_STATES: Self = Self::of(&[EventName::PoolReady, EventName::PoolCleared]);

    /// Check-outs and check-ins of pooled connections: a part of [`POOLS`](Self::POOLS). Each
    /// operation publishes three of these events.
    pub const CHECK_OUTS: Self = Self::of(&[
        EventName::ConnectionCheckOutStarted,
        EventName::ConnectionCheckOutFailed,
        EventName::ConnectionCheckedOut,
        EventName::ConnectionCheckedIn,
    ]);

    /// The events of connection pools and their connections (CMAP: "Events"). A pool that supports
    /// events publishes all of them except [`POOL_STATES`](Self::POOL_STATES).
    pub const POOLS: Self = Self::of(&[
        EventName::PoolCreated,
        EventName::PoolClosed,
        EventName::ConnectionCreated,
        EventName::ConnectionReady,
        EventName::ConnectionClosed,
    ])
    .union(Self::POOL_STATES)
    .union(Self::CHECK_OUTS);

    /// The events of commands (Command Logging and Monitoring), for clients that publish them. Each
    /// command publishes two events, with copies of the command and the reply.
    pub const COMMANDS: Self = Self::of(&[
        EventName::CommandStarted,
        EventName::CommandSucceeded,
        EventName::CommandFailed,
    ]);

    /// The steps of each server selection.
    pub const SELECTION: Self = Self::of(&[
        EventName::ServerSelectionStarted,
        EventName::ServerSelectionWaiting,
        EventName::ServerSelectionSucceeded,
        EventName::ServerSelectionFailed,
    ]);

    /// The events that every operation publishes, which make each operation slower: selections,
    /// check-outs and commands.
    pub const OPERATIONS: Self = Self::SELECTION.union(Self::CHECK_OUTS).union(Self::COMMANDS);

    /// The inputs of the topology, for recordings, and its round-trip times. Each answer from a
    /// server causes one or both of these events.
    pub const INPUTS: Self = Self::of(&[EventName::Input, EventName::RttMeasured]);

    /// All events, including those added by later versions, but not the inputs of the topology:
    /// only a sink that names [`INPUTS`](Self::INPUTS) gets them.
    pub const ALL: Self = Self(u64::MAX).without(Self::of(&[EventName::Input]));

    /// Returns the set that contains exactly the given names.
    pub const fn of(names: &[EventName]) -> Self {
        let mut set = 0;
        let mut rest = names;
        while let [name, tail @ ..] = rest {
            set |= 1 << name.index();
            rest = tail;
        }
        Self(set)
    }

    /// Returns the names that are in at least one of the sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the names that are in both sets.
    #[must_use]
    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the names that are in this set but not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether `name` is in the set.
    pub const fn contains(self, name: EventName) -> bool {
        self.0 & (1 << name.index()) != 0
    }

    /// Returns whether every name of `other` is in the set.
    pub(crate) const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether no name is in the set.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the names in the set, in the order of [`EventName::ALL`].
    pub fn names(self) -> impl Iterator<Item = EventName> {
        EventName::ALL.iter().copied().filter(move |name| self.contains(*name))
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl<I: Into<Self>> BitOr<I> for Interest {
    type Output = Self;

    fn bitor(self, other: I) -> Self {
        self.union(other.into())
    }
}

impl From<EventName> for Interest {
    fn from(name: EventName) -> Self {
        Self::of(&[name])
    }
}

impl FromIterator<EventName> for Interest {
    fn from_iter<I: IntoIterator<Item = EventName>>(names: I) -> Self {
        names.into_iter().fold(Self::NONE, |set, name| set.union(name.into()))
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names().map(EventName::as_str)).finish()
    }
}

/// Returns a sink that calls `function`; see [`SinkFn::interested_in`] for events beyond
/// [`Interest::SDAM`].
pub fn sink_fn<F: Fn(&Event) + Send + Sync + 'static>(function: F) -> SinkFn<F> {
    SinkFn { function, interest: Interest::SDAM }
}

/// A sink that calls a closure, created by [`sink_fn`].
pub struct SinkFn<F> {
    function: F,
    interest: Interest,
}

impl<F> SinkFn<F> {
    /// Sets which events the sink receives.
    #[must_use]
    pub fn interested_in(mut self, interest: Interest) -> Self {
        self.interest = interest;
        self
    }
}

impl<F: Fn(&Event) + Send + Sync + 'static> EventSink for SinkFn<F> {
    fn emit(&self, event: &Event) {
        (self.function)(event);
    }

    fn interest(&self) -> Interest {
        self.interest
    }
}

sdam_core::opaque!(SinkFn<F>, |this| interest: this.interest);

/// Combines several sinks: passes each event to every sink that is interested in it, one after the
/// other.
///
/// A sink that panics is not called again; the other sinks still are. The interest of each sink is
/// read once.
///
/// ```
/// use std::sync::Arc;
/// use sdam_events::{channel, sink::{EventSink, Fanout, sink_fn}};
///
/// let (sender, events) = channel::unbounded();
/// let printer = sink_fn(|event| println!("{}", event.kind.name().as_str()));
/// let sink: Fanout = [Arc::new(sender) as Arc<dyn EventSink>, Arc::new(printer)].into_iter().collect();
/// # drop((sink, events));
/// ```
#[derive(Debug, Default)]
pub struct Fanout {
    branches: Vec<Branch>,
}

#[derive(Debug)]
struct Branch {
    sink: Arc<dyn EventSink>,
    interest: Interest,
    has_panicked: AtomicBool,
}

impl EventSink for Fanout {
    fn emit(&self, event: &Event) {
        let name = event.kind.name();
        for branch in &self.branches {
            if branch.interest.contains(name)
                && !branch.has_panicked.load(Ordering::Relaxed)
                && let Err(failure) = call(&*branch.sink, event)
            {
                failure.report();
                branch.has_panicked.store(true, Ordering::Relaxed);
            }
        }
    }

    fn interest(&self) -> Interest {
        self.branches.iter().fold(Interest::NONE, |union, branch| union.union(branch.interest))
    }
}

impl FromIterator<Arc<dyn EventSink>> for Fanout {
    fn from_iter<I: IntoIterator<Item = Arc<dyn EventSink>>>(sinks: I) -> Self {
        let branch = |sink: Arc<dyn EventSink>| Branch {
            interest: sink.interest(),
            sink,
            has_panicked: AtomicBool::new(false),
        };
        Self { branches: sinks.into_iter().map(branch).collect() }
    }
}

/// The panic of a sink, which is not called again afterwards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("the event sink panicked at event {seq} and is disabled: {message}")]
pub struct SinkPanicked {
    /// The sequence number of the event during which the sink panicked.
    pub seq: u64,
    /// The panic message.
    pub message: Box<str>,
}

impl SinkPanicked {
    /// Logs the panic through `tracing` if that feature is enabled.
    pub(crate) fn report(&self) {
        #[cfg(feature = "tracing")]
        tracing::error!(target: "sdam::events", "{self}");
        #[cfg(not(feature = "tracing"))]
        let _ = self;
    }
}

/// Calls the sink and catches its panic.
pub(crate) fn call(sink: &dyn EventSink, event: &Event) -> Result<(), SinkPanicked> {
    // This is unwind safe, because a sink that has panicked is not called again.
    catch_unwind(AssertUnwindSafe(|| sink.emit(event)))
        .map_err(|payload| SinkPanicked { seq: event.seq, message: panic_message(payload) })
}

fn panic_message(payload: Box<dyn Any + Send>) -> Box<str> {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).into(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => text.into_boxed_str(),
            Err(payload) => {
                // Dropping a payload of unknown type could panic again.
                mem::forget(payload);
                "a panic without a message".into()
            }
        },
    }
}

/// Locks the state of a sink. Poisoning is ignored, because a sink that has panicked is not called
/// again.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
