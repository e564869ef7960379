//! What is published about a topology, in order (SDAM Logging and Monitoring).

use alloc::{boxed::Box, sync::Arc};
use core::time::Duration;

use crate::{
    address::ServerAddress,
    error::ServerError,
    ids::{ObjectId, ServerId},
    options::Warning,
    pool::PoolClear,
    server::ServerDescription,
    time::Instant,
    topology::{DepartureReason, TopologyDescription},
};

mod recorded;

pub use recorded::{RecordedCause, RecordedError, RecordedInput};

/// Something that happened, with its place in the order of everything that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// Counts the events of a topology from 1 without gaps. The order of numbers is the order of
    /// delivery and the order in which the changes were made.
    pub seq: u64,
    /// When it happened, on the runtime's clock; never before the event that precedes it.
    pub at: Instant,
    /// The topology it happened in.
    pub topology: ObjectId,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
///
/// Payloads are shared, so cloning an event is cheap.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The first event of a topology.
    TopologyOpening,
    /// The topology looks different from before.
    TopologyDescriptionChanged {
        /// Before the change.
        previous: Arc<TopologyDescription>,
        /// After the change.
        new: Arc<TopologyDescription>,
    },
    /// The last event of a topology.
    TopologyClosed,
    /// Something about the options was worked around, or has no effect; see
    /// [`Options::multi_threaded_warnings`](crate::options::Options::multi_threaded_warnings).
    ConfigWarning(Arc<Warning>),
    /// A server has joined the topology; its monitor starts after this event.
    ServerOpening {
        /// The server's incarnation.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// A server looks different from before; never for round-trip times alone.
    ServerDescriptionChanged {
        /// Before the change.
        previous: Arc<ServerDescription>,
        /// After the change.
        new: Arc<ServerDescription>,
    },
    /// A server has left the topology.
    ServerClosed {
        /// The server's incarnation.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// Why; a field of ours.
        reason: DepartureReason,
    },
    /// Members of the replica set did not join the topology, because it has as many servers as
    /// are allowed. Published when the number changes, unless to none.
    MembersIgnored {
        /// How many members did not join.
        ignored: usize,
        /// How many servers are allowed.
        limit: usize,
    },
    /// The last server has left the topology, which will never find one again: nothing can tell it
    /// of other servers. What is configured does not fit the
    /// deployment.
    TopologyEmptied,
    /// Events were left out, because too many wait to be delivered: whole heartbeats and selections
    /// first, in the end everything that has no beginning among what is delivered. Published when
    /// that begins and when it is over.
    EventsDropped {
        /// How many events have been left out since the topology was opened.
        total: u64,
    },
    /// A check has begun; exactly one of the next two follows for it.
    ServerHeartbeatStarted(Heartbeat),
    /// A check has succeeded.
    ServerHeartbeatSucceeded {
        /// The check.
        heartbeat: Heartbeat,
        /// From sending hello, or from starting to wait for a streamed reply, to having read it.
        duration: Duration,
        /// The reply, a BSON document.
        reply: Arc<[u8]>,
    },
    /// A check has failed or was cancelled.
    ServerHeartbeatFailed {
        /// The check.
        heartbeat: Heartbeat,
        /// From the start of the check, or from sending hello, to the failure.
        duration: Duration,
        /// What went wrong.
        failure: Arc<ServerError>,
    },
    /// The topology has let a server's pool open connections.
    PoolReady {
        /// The server's incarnation.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// The topology has cleared a server's pool, also one that [was paused](PoolClear::was_paused).
    PoolCleared {
        /// The server's incarnation.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// How and why.
        clear: PoolClear,
    },
    /// An operation has begun to look for a server; exactly one success or failure follows, if need
    /// be before the topology is closed.
    ServerSelectionStarted {
        /// Who looks for what.
        selection: Arc<Selection>,
        /// What is known at this moment.
        description: Arc<TopologyDescription>,
    },
    /// No server was suitable at once; at most one of these for each selection.
    ServerSelectionWaiting {
        /// Who looks for what.
        selection: Arc<Selection>,
        /// What is known at this moment.
        description: Arc<TopologyDescription>,
        /// The time left before the selection fails; `None` for no limit.
        remaining: Option<Duration>,
    },
    /// An operation has found its server.
    ServerSelectionSucceeded {
        /// Who looked for what.
        selection: Arc<Selection>,
        /// What is known at this moment.
        description: Arc<TopologyDescription>,
        /// The server's incarnation.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// How long the selection took.
        duration: Duration,
    },
    /// An operation has found no server.
    ServerSelectionFailed {
        /// Who looked for what.
        selection: Arc<Selection>,
        /// What is known at this moment.
        description: Arc<TopologyDescription>,
        /// The kind of failure, for counters.
        reason: SelectionFailure,
        /// The failure for people, without the topology description.
        failure: Arc<str>,
        /// How long the selection took.
        duration: Duration,
    },
    /// The topology was told something; what follows from it comes right behind, mixed at most
    /// with events of checks and selections.
    Input(Arc<RecordedInput>),
}

/// Which server selection an event speaks of; made once for each selection that is listened to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// Every part of the read preference, or that the selector is custom.
    pub selector: Box<str>,
    /// The command the server is for, such as `find`.
    pub operation: Option<Box<str>>,
    /// The driver's number of the operation, if it counts them.
    pub operation_id: Option<i64>,
}

impl Selection {
    /// A selection by `selector`, for an operation that is not known.
    pub fn new(selector: impl Into<Box<str>>) -> Self {
        Self {
            selector: selector.into(),
            operation: None,
            operation_id: None,
        }
    }

    /// The same selection for the operation of this name and number.
    #[must_use]
    pub fn with_operation(mut self, operation: impl Into<Box<str>>, id: Option<i64>) -> Self {
        self.operation = Some(operation.into());
        self.operation_id = id;
        self
    }
}

/// Why a server selection has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SelectionFailure {
    /// `serverSelectionTimeoutMS` has passed.
    Timeout,
    /// A server speaks no wire version that the client speaks.
    Incompatible,
    /// The read preference does not fit the deployment.
    InvalidCriteria,
    /// No server was suitable at once, and as many selections were waiting as may.
    TooManyWaiters,
    /// The topology was closed.
    Closed,
    /// The runtime has shut down before the topology was closed.
    RuntimeShutDown,
    /// The caller has lost interest.
    Cancelled,
}

impl SelectionFailure {
    /// Lower-case words joined by underscores, for counters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Incompatible => "incompatible",
            Self::InvalidCriteria => "invalid_criteria",
            Self::TooManyWaiters => "too_many_waiters",
            Self::Closed => "closed",
            Self::RuntimeShutDown => "runtime_shut_down",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Which check an event speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heartbeat {
    /// The server's incarnation.
    pub server: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// The connection that carries the check.
    pub connection: ConnectionId,
    /// Whether the server may delay its reply until something changes.
    pub awaited: bool,
}

impl Heartbeat {
    /// The check of `server` at `address` on `connection`.
    pub fn new(
        server: ServerId,
        address: ServerAddress,
        connection: ConnectionId,
        awaited: bool,
    ) -> Self {
        Self {
            server,
            address,
            connection,
            awaited,
        }
    }
}

/// The two ids of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Counts the connections of one server's monitor from 1; unique together with the server.
    pub driver: u64,
    /// The number the server gave it in its first reply; `None` before that.
    pub server: Option<i64>,
}

/// An event's kind without its payload, for filters and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventName {
    /// [`EventKind::TopologyOpening`]
    TopologyOpening,
    /// [`EventKind::TopologyDescriptionChanged`]
    TopologyDescriptionChanged,
    /// [`EventKind::TopologyClosed`]
    TopologyClosed,
    /// [`EventKind::ConfigWarning`]
    ConfigWarning,
    /// [`EventKind::ServerOpening`]
    ServerOpening,
    /// [`EventKind::ServerDescriptionChanged`]
    ServerDescriptionChanged,
    /// [`EventKind::ServerClosed`]
    ServerClosed,
    /// [`EventKind::MembersIgnored`]
    MembersIgnored,
    /// [`EventKind::TopologyEmptied`]
    TopologyEmptied,
    /// [`EventKind::EventsDropped`]
    EventsDropped,
    /// [`EventKind::ServerHeartbeatStarted`]
    ServerHeartbeatStarted,
    /// [`EventKind::ServerHeartbeatSucceeded`]
    ServerHeartbeatSucceeded,
    /// [`EventKind::ServerHeartbeatFailed`]
    ServerHeartbeatFailed,
    /// [`EventKind::PoolReady`]
    PoolReady,
    /// [`EventKind::PoolCleared`]
    PoolCleared,
    /// [`EventKind::ServerSelectionStarted`]
    ServerSelectionStarted,
    /// [`EventKind::ServerSelectionWaiting`]
    ServerSelectionWaiting,
    /// [`EventKind::ServerSelectionSucceeded`]
    ServerSelectionSucceeded,
    /// [`EventKind::ServerSelectionFailed`]
    ServerSelectionFailed,
    /// [`EventKind::Input`]
    Input,
}

impl EventKind {
    /// The kind without its payload.
    pub fn name(&self) -> EventName {
        match self {
            Self::TopologyOpening => EventName::TopologyOpening,
            Self::TopologyDescriptionChanged { .. } => EventName::TopologyDescriptionChanged,
            Self::TopologyClosed => EventName::TopologyClosed,
            Self::ConfigWarning(_) => EventName::ConfigWarning,
            Self::ServerOpening { .. } => EventName::ServerOpening,
            Self::ServerDescriptionChanged { .. } => EventName::ServerDescriptionChanged,
            Self::ServerClosed { .. } => EventName::ServerClosed,
            Self::MembersIgnored { .. } => EventName::MembersIgnored,
            Self::TopologyEmptied => EventName::TopologyEmptied,
            Self::EventsDropped { .. } => EventName::EventsDropped,
            Self::ServerHeartbeatStarted(_) => EventName::ServerHeartbeatStarted,
            Self::ServerHeartbeatSucceeded { .. } => EventName::ServerHeartbeatSucceeded,
            Self::ServerHeartbeatFailed { .. } => EventName::ServerHeartbeatFailed,
            Self::PoolReady { .. } => EventName::PoolReady,
            Self::PoolCleared { .. } => EventName::PoolCleared,
            Self::ServerSelectionStarted { .. } => EventName::ServerSelectionStarted,
            Self::ServerSelectionWaiting { .. } => EventName::ServerSelectionWaiting,
            Self::ServerSelectionSucceeded { .. } => EventName::ServerSelectionSucceeded,
            Self::ServerSelectionFailed { .. } => EventName::ServerSelectionFailed,
            Self::Input(_) => EventName::Input,
        }
    }

    /// The address of the server the event speaks of, if it speaks of one.
    pub fn address(&self) -> Option<&ServerAddress> {
        match self {
            Self::TopologyOpening
            | Self::TopologyDescriptionChanged { .. }
            | Self::TopologyClosed
            | Self::ConfigWarning(_)
            | Self::MembersIgnored { .. }
            | Self::TopologyEmptied
            | Self::EventsDropped { .. }
            | Self::ServerSelectionStarted { .. }
            | Self::ServerSelectionWaiting { .. }
            | Self::ServerSelectionFailed { .. }
            | Self::Input(_) => None,
            Self::ServerOpening { address, .. }
            | Self::ServerClosed { address, .. }
            | Self::PoolReady { address, .. }
            | Self::PoolCleared { address, .. }
            | Self::ServerSelectionSucceeded { address, .. } => Some(address),
            Self::ServerDescriptionChanged { new, .. } => Some(&new.address),
            Self::ServerHeartbeatStarted(heartbeat)
            | Self::ServerHeartbeatSucceeded { heartbeat, .. }
            | Self::ServerHeartbeatFailed { heartbeat, .. } => Some(&heartbeat.address),
        }
    }
}

impl EventName {
    /// Every name, in the order of [`index`](Self::index).
    pub const ALL: &'static [Self] = &[
        Self::TopologyOpening,
        Self::TopologyDescriptionChanged,
        Self::TopologyClosed,
        Self::ConfigWarning,
        Self::ServerOpening,
        Self::ServerDescriptionChanged,
        Self::ServerClosed,
        Self::MembersIgnored,
        Self::TopologyEmptied,
        Self::EventsDropped,
        Self::ServerHeartbeatStarted,
        Self::ServerHeartbeatSucceeded,
        Self::ServerHeartbeatFailed,
        Self::PoolReady,
        Self::PoolCleared,
        Self::ServerSelectionStarted,
        Self::ServerSelectionWaiting,
        Self::ServerSelectionSucceeded,
        Self::ServerSelectionFailed,
        Self::Input,
    ];

    /// The name's place in [`ALL`](Self::ALL), for sets and tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The specification's name, such as `ServerHeartbeatStarted`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TopologyOpening => "TopologyOpening",
            Self::TopologyDescriptionChanged => "TopologyDescriptionChanged",
            Self::TopologyClosed => "TopologyClosed",
            Self::ConfigWarning => "ConfigWarning",
            Self::ServerOpening => "ServerOpening",
            Self::ServerDescriptionChanged => "ServerDescriptionChanged",
            Self::ServerClosed => "ServerClosed",
            Self::MembersIgnored => "MembersIgnored",
            Self::TopologyEmptied => "TopologyEmptied",
            Self::EventsDropped => "EventsDropped",
            Self::ServerHeartbeatStarted => "ServerHeartbeatStarted",
            Self::ServerHeartbeatSucceeded => "ServerHeartbeatSucceeded",
            Self::ServerHeartbeatFailed => "ServerHeartbeatFailed",
            Self::PoolReady => "PoolReady",
            Self::PoolCleared => "PoolCleared",
            Self::ServerSelectionStarted => "ServerSelectionStarted",
            Self::ServerSelectionWaiting => "ServerSelectionWaiting",
            Self::ServerSelectionSucceeded => "ServerSelectionSucceeded",
            Self::ServerSelectionFailed => "ServerSelectionFailed",
            Self::Input => "Input",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_indexed_in_the_order_in_which_they_are_listed() {
        for (index, name) in EventName::ALL.iter().enumerate() {
            assert_eq!(name.index(), index, "{}", name.as_str());
        }
    }

    #[test]
    fn events_bear_the_names_of_the_specification() {
        // J-11: without the word "event", which is part of the type's name.
        let published = [
            (EventName::TopologyOpening, "TopologyOpening"),
            (
                EventName::TopologyDescriptionChanged,
                "TopologyDescriptionChanged",
            ),
            (EventName::TopologyClosed, "TopologyClosed"),
            (EventName::ServerOpening, "ServerOpening"),
            (
                EventName::ServerDescriptionChanged,
                "ServerDescriptionChanged",
            ),
            (EventName::ServerClosed, "ServerClosed"),
            (EventName::ServerHeartbeatStarted, "ServerHeartbeatStarted"),
            (
                EventName::ServerHeartbeatSucceeded,
                "ServerHeartbeatSucceeded",
            ),
            (EventName::ServerHeartbeatFailed, "ServerHeartbeatFailed"),
        ];
        for (name, text) in published {
            assert_eq!(name.as_str(), text);
        }
    }
}
