//! Events that a topology publishes, in order (SDAM Logging and Monitoring).

use alloc::{boxed::Box, sync::Arc};
use core::time::Duration;

use crate::{
    address::ServerAddress,
    error::ServerError,
    ids::{ObjectId, ServerId},
    input::RecordedInput,
    options::Warning,
    pool::PoolClear,
    server::ServerDescription,
    time::Instant,
    topology::{DepartureReason, TopologyDescription},
};

/// A published event with its sequence number and time.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Event {
    /// The sequence number, counted from 1 without gaps in each topology. It is the order of
    /// delivery and the order in which the changes were made.
    pub seq: u64,
    /// The time on the runtime's clock; never before that of the preceding event.
    pub at: Instant,
    /// The id of the topology.
    pub topology: ObjectId,
    /// The kind of event and its payload.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub kind: EventKind,
}

impl Event {
    /// Creates an event; a topology numbers its events itself.
    pub fn new(seq: u64, at: Instant, topology: ObjectId, kind: EventKind) -> Self {
        Self {
            seq,
            at,
            topology,
            kind,
        }
    }
}

/// The kind of an event and its payload.
///
/// Payloads are shared, so cloning an event is cheap.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "event", rename_all_fields = "camelCase")
)]
pub enum EventKind {
    /// The first event of a topology.
    #[doc(alias = "TopologyOpeningEvent")]
    TopologyOpening,
    /// The topology description has changed.
    #[doc(alias = "TopologyDescriptionChangedEvent")]
    TopologyDescriptionChanged {
        /// Before the change.
        #[cfg_attr(feature = "serde", serde(skip))]
        previous: Arc<TopologyDescription>,
        /// After the change.
        #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialize::summary"))]
        new: Arc<TopologyDescription>,
    },
    /// The last event of a topology.
    #[doc(alias = "TopologyClosedEvent")]
    TopologyClosed,
    /// A problem with the options was worked around, or an option has no effect; see
    /// [`Options::multi_threaded_warnings`](crate::options::Options::multi_threaded_warnings).
    ConfigWarning(Arc<Warning>),
    /// A server has joined the topology; its monitor starts after this event.
    #[doc(alias = "ServerOpeningEvent")]
    ServerOpening {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// A server description has changed; not published for round-trip times alone.
    #[doc(alias = "ServerDescriptionChangedEvent")]
    ServerDescriptionChanged {
        /// Before the change.
        #[cfg_attr(feature = "serde", serde(skip))]
        previous: Arc<ServerDescription>,
        /// After the change.
        new: Arc<ServerDescription>,
    },
    /// A server has left the topology.
    #[doc(alias = "ServerClosedEvent")]
    ServerClosed {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// Why it left; not in the specification.
        reason: DepartureReason,
    },
    /// Members of the replica set were not added, because the topology has the maximum number of
    /// servers. Published when the number of ignored members changes, except to 0.
    MembersIgnored {
        /// The number of ignored members.
        ignored: usize,
        /// The maximum number of servers.
        limit: usize,
    },
    /// The last server has left the topology, so no server can be discovered any more, except by
    /// SRV polling. The configuration does not fit the deployment.
    TopologyEmptied,
    /// Events were dropped, because too many are queued for delivery: first new heartbeats and
    /// selections as a whole, at the limit all events except those of heartbeats and selections
    /// under way. Published when dropping starts and when it ends.
    EventsDropped {
        /// The number of events dropped since the topology was opened.
        total: u64,
    },
    /// A check has begun; exactly one of the next two follows for it.
    #[doc(alias = "ServerHeartbeatStartedEvent")]
    ServerHeartbeatStarted(Heartbeat),
    /// A check has succeeded.
    #[doc(alias = "ServerHeartbeatSucceededEvent")]
    ServerHeartbeatSucceeded {
        /// The check.
        #[cfg_attr(feature = "serde", serde(flatten))]
        heartbeat: Heartbeat,
        /// The time from sending hello, or from starting to wait for a streamed reply, until the
        /// reply was read.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
        /// The reply, a BSON document.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::base64"))]
        reply: Arc<[u8]>,
    },
    /// A check has failed or was cancelled.
    #[doc(alias = "ServerHeartbeatFailedEvent")]
    ServerHeartbeatFailed {
        /// The check.
        #[cfg_attr(feature = "serde", serde(flatten))]
        heartbeat: Heartbeat,
        /// The time from the start of the check, or from sending hello, to the failure.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
        /// The error.
        #[cfg_attr(feature = "serde", serde(rename = "error"))]
        failure: Arc<ServerError>,
    },
    /// The topology has marked a server's pool ready to open connections.
    #[doc(alias = "PoolReadyEvent")]
    PoolReady {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// The topology has cleared a server's pool, even if it [was paused](PoolClear::was_paused).
    #[doc(alias = "PoolClearedEvent")]
    PoolCleared {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The clear and its cause.
        #[cfg_attr(feature = "serde", serde(flatten))]
        clear: PoolClear,
    },
    /// A server selection has started. Exactly one success or failure follows, at the latest
    /// before the topology is closed.
    ServerSelectionStarted {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The description at this moment.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
    },
    /// A server selection waits, because no server is suitable; published at most once for each
    /// selection.
    ServerSelectionWaiting {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The description at this moment.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
        /// The time left before the selection fails; `None` for no limit.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        remaining: Option<Duration>,
    },
    /// A server selection has succeeded.
    ServerSelectionSucceeded {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The description at this moment.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// How long the selection took.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
    },
    /// A server selection has failed.
    ServerSelectionFailed {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The description at this moment.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
        /// The kind of failure, for counters.
        reason: SelectionFailure,
        /// The human-readable failure, without the topology description.
        failure: Arc<str>,
        /// How long the selection took.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
    },
    /// An input of the topology. The events that follow from it come directly after it, mixed at
    /// most with events of checks and selections.
    #[cfg_attr(
        feature = "serde",
        serde(untagged, serialize_with = "crate::serialize::input")
    )]
    Input(Arc<RecordedInput>),
}

/// The server selection of an event; created once for each selection that has listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "camelCase")
)]
pub struct Selection {
    /// Every part of the read preference, or that the selector is custom.
    pub selector: Box<str>,
    /// The name of the operation's command, such as `find`.
    pub operation: Option<Box<str>>,
    /// The driver's operation id, if it assigns one.
    pub operation_id: Option<i64>,
}

impl Selection {
    /// Creates a selection by `selector`, for an unknown operation.
    pub fn new(selector: impl Into<Box<str>>) -> Self {
        Self {
            selector: selector.into(),
            operation: None,
            operation_id: None,
        }
    }

    /// Sets the name and number of the operation.
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
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum SelectionFailure {
    /// `serverSelectionTimeoutMS` has passed.
    Timeout,
    /// A server supports no wire version that the client supports.
    Incompatible,
    /// The read preference does not fit the deployment.
    InvalidCriteria,
    /// No server was suitable at once, and the maximum number of selections was waiting.
    TooManyWaiters,
    /// The topology was closed.
    Closed,
    /// The runtime has shut down before the topology was closed.
    RuntimeShutDown,
    /// The caller has cancelled the selection.
    Cancelled,
}

impl SelectionFailure {
    /// Returns lower-case words joined by underscores, for counters.
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

/// The check of a heartbeat event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Heartbeat {
    /// The server id.
    pub server: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// The connection that carries the check.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub connection: ConnectionId,
    /// Whether the server may delay its reply until something changes.
    pub awaited: bool,
}

impl Heartbeat {
    /// Creates the check of `server` at `address` on `connection`.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ConnectionId {
    /// The client's number, counted from 1 for each server's monitor; unique together with the
    /// server id.
    #[cfg_attr(feature = "serde", serde(rename = "driverConnectionId"))]
    pub driver: u64,
    /// The server's number, from its first reply; `None` before that.
    #[cfg_attr(feature = "serde", serde(rename = "serverConnectionId"))]
    pub server: Option<i64>,
}

/// An event's kind without its payload, for filters and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// Returns the kind without its payload.
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

    /// Returns the address of the server that the event is about, if any.
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

    /// Returns the name's index in [`ALL`](Self::ALL), for sets and tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the specification's name, such as `ServerHeartbeatStarted`.
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
    fn events_have_the_specified_names() {
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
