//! Events that a topology publishes, in order (SDAM Logging and Monitoring).

mod payload;

use alloc::sync::Arc;
use core::{fmt::Debug, time::Duration};

pub use self::payload::{
    CheckOutFailure, CommandInfo, ConnectionClosedReason, ConnectionId, Heartbeat, Selection,
    SelectionFailure,
};
use crate::{
    address::ServerAddress,
    deployment::RecordedInput,
    document::SharedDocument,
    error::Error,
    ids::{ObjectId, ServerId},
    options::Warning,
    pool::{PoolClear, PoolOptions},
    server::{Rtt, ServerDescription},
    time::{Instant, UnixTime},
    topology::{DepartureReason, Obstacle, TopologyDescription},
};

/// A published event with its sequence number and time.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Event {
    /// The sequence number, counted from 1 without gaps in each topology. Events are delivered in
    /// this order, which is also the order of the changes.
    pub seq: u64,
    /// The time on the runtime's clock, never earlier than the time of the preceding event.
    pub at: Instant,
    /// The wall-clock time at which the event was queued, from the runtime's `Clock`; `None` for an
    /// event that no topology has published.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub time: Option<UnixTime>,
    /// The id of the topology.
    pub topology: ObjectId,
    /// The kind of event and its payload.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub kind: EventKind,
}

impl Event {
    /// Creates an event without a wall-clock time. Topologies number their own events.
    pub fn new(seq: u64, at: Instant, topology: ObjectId, kind: EventKind) -> Self {
        Self { seq, at, time: None, topology, kind }
    }
}

/// The kind of an event and its payload.
///
/// Payloads are shared, so cloning an event is cheap.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "event", rename_all_fields = "camelCase"))]
#[derive(strum::EnumDiscriminants)]
#[strum_discriminants(
    name(EventName),
    derive(PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray),
    doc = "The kind of an event without its payload, for filters and counters. The variants are those of [`EventKind`].",
    non_exhaustive,
    cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))
)]
pub enum EventKind {
    /// The first event of a topology.
    #[doc(alias = "TopologyOpeningEvent")]
    TopologyOpening,
    /// The topology description has changed.
    #[doc(alias = "TopologyDescriptionChangedEvent")]
    TopologyDescriptionChanged {
        /// The description before the change.
        #[cfg_attr(feature = "serde", serde(skip))]
        previous: Arc<TopologyDescription>,
        /// The description after the change.
        new: Arc<TopologyDescription>,
    },
    /// The last event of a topology.
    #[doc(alias = "TopologyClosedEvent")]
    TopologyClosed,
    /// An option has no effect, or a problem with the options was worked around; see
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
    /// A server description has changed. Not published if only the round-trip times have changed.
    #[doc(alias = "ServerDescriptionChangedEvent")]
    ServerDescriptionChanged {
        /// The description before the change.
        #[cfg_attr(feature = "serde", serde(skip))]
        previous: Arc<ServerDescription>,
        /// The description after the change.
        new: Arc<ServerDescription>,
    },
    /// A server has left the topology.
    #[doc(alias = "ServerClosedEvent")]
    ServerClosed {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The reason why the server left. The specification's event lacks this field.
        reason: DepartureReason,
    },
    /// Members of the replica set were not added, because the topology already has the maximum
    /// number of servers. Published when the number of ignored members changes, except when it
    /// drops to 0.
    MembersIgnored {
        /// The number of ignored members.
        ignored: usize,
        /// The maximum number of servers.
        limit: usize,
    },
    /// The last server has left the topology, so no more servers can be discovered, except by SRV
    /// polling. This means that the configuration does not match the deployment.
    TopologyEmptied,
    /// Hosts in the SRV record were ignored, because they are not in its domain (Polling SRV
    /// Records for mongos Discovery: "MUST verify").
    SrvHostsIgnored {
        /// The name that was looked up.
        name: Arc<str>,
        /// The domain to which the hosts should belong.
        domain: Arc<str>,
        /// The ignored hosts.
        hosts: Arc<[ServerAddress]>,
    },
    /// A look-up of the SRV record found no host; the topology keeps its servers.
    SrvLookupFailed {
        /// The name that was looked up.
        name: Arc<str>,
        /// The reason why there are no hosts.
        #[cfg_attr(feature = "serde", serde(rename = "error"))]
        failure: Error,
        /// The time until the next look-up.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        next: Duration,
    },
    /// A server cannot be used by this client until a name, a proxy, a certificate or the client's
    /// configuration is changed. Not published again until the server has answered or has failed
    /// for a different kind of reason.
    ServerUnusable {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The reason why the server cannot be used.
        obstacle: Obstacle,
    },
    /// A server's answer is overdue, and another server has answered since that answer was
    /// expected. The server keeps its type. Exactly one `ServerSuspicionEnded` follows.
    ServerSuspected {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The time since the server's last answer.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        silence: Duration,
    },
    /// A suspected server has answered, has become Unknown or has left the topology.
    ServerSuspicionEnded {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The time since `ServerSuspected`.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
        /// True if the server has answered.
        answered: bool,
    },
    /// Events were dropped because too many are queued for delivery. At first, only events of
    /// check-outs and of new heartbeats, selections and commands are dropped. At the limit, all
    /// events are dropped except `TopologyClosed` and those of heartbeats, selections and commands
    /// that have already begun. Published when dropping starts and when it ends.
    EventsDropped {
        /// The number of events dropped since the topology was opened.
        total: u64,
    },
    /// A check has begun. Exactly one `ServerHeartbeatSucceeded` or `ServerHeartbeatFailed`
    /// follows.
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
        reply: SharedDocument,
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
        failure: Error,
    },
    /// A server's pool was created; it is paused.
    #[doc(alias = "ConnectionPoolCreated", alias = "PoolCreatedEvent")]
    PoolCreated {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The options of the pool.
        options: Arc<PoolOptions>,
    },
    /// The topology has marked a server's pool ready, so that it may open connections.
    #[doc(alias = "ConnectionPoolReady", alias = "PoolReadyEvent")]
    PoolReady {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// The topology has cleared a server's pool. Not published if the pool [was already
    /// paused](PoolClear::was_paused).
    #[doc(alias = "ConnectionPoolCleared", alias = "PoolClearedEvent")]
    PoolCleared {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The clear and its cause.
        #[cfg_attr(feature = "serde", serde(flatten))]
        clear: PoolClear,
    },
    /// A pool was closed: its server has left the topology, or the topology was closed.
    #[doc(alias = "ConnectionPoolClosed", alias = "PoolClosedEvent")]
    PoolClosed {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// A pool has created a connection, which it will now establish. Exactly one `ConnectionClosed`
    /// follows; closing the topology waits for that event, but only for a limited time.
    #[doc(alias = "ConnectionCreatedEvent")]
    ConnectionCreated {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        connection: ConnectionId,
    },
    /// A pool has established a connection, including hello and authentication.
    #[doc(alias = "ConnectionReadyEvent")]
    ConnectionReady {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        connection: ConnectionId,
        /// The time since `ConnectionCreated`.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
    },
    /// A pool has closed a connection.
    #[doc(alias = "ConnectionClosedEvent")]
    ConnectionClosed {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        connection: ConnectionId,
        /// The reason why the connection was closed.
        reason: ConnectionClosedReason,
        /// The error that caused the connection to be closed, if any.
        error: Option<Error>,
    },
    /// A check-out has started. Exactly one `ConnectionCheckOutFailed` or `ConnectionCheckedOut`
    /// follows; closing the topology waits for that event, but only for a limited time.
    #[doc(alias = "ConnectionCheckOutStartedEvent")]
    ConnectionCheckOutStarted {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
    },
    /// A check-out has failed.
    #[doc(alias = "ConnectionCheckOutFailedEvent")]
    ConnectionCheckOutFailed {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The kind of failure.
        reason: CheckOutFailure,
        /// A human-readable description of the failure.
        failure: Arc<str>,
        /// The time since `ConnectionCheckOutStarted`.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
    },
    /// A check-out has succeeded.
    #[doc(alias = "ConnectionCheckedOutEvent")]
    ConnectionCheckedOut {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        connection: ConnectionId,
        /// The time since `ConnectionCheckOutStarted`.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
    },
    /// A connection was returned to its pool.
    #[doc(alias = "ConnectionCheckedInEvent")]
    ConnectionCheckedIn {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The connection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        connection: ConnectionId,
    },
    /// A command is about to be sent. Exactly one `CommandSucceeded` or `CommandFailed` follows;
    /// closing the topology waits for that event, but only for a limited time. Create this event
    /// with [`CommandInfo::started`], which redacts sensitive commands.
    #[doc(alias = "CommandStartedEvent")]
    CommandStarted {
        /// The command's names and ids.
        #[cfg_attr(feature = "serde", serde(flatten))]
        command: Arc<CommandInfo>,
        /// The command, a BSON document; empty if it is sensitive.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::base64"))]
        document: SharedDocument,
    },
    /// A command was answered with `ok: 1`, possibly with errors of individual writes. Create this
    /// event with [`CommandInfo::succeeded`].
    #[doc(alias = "CommandSucceededEvent")]
    CommandSucceeded {
        /// The command's names and ids.
        #[cfg_attr(feature = "serde", serde(flatten))]
        command: Arc<CommandInfo>,
        /// The time from sending the command until the reply was read.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
        /// The reply, a BSON document; empty if the command is sensitive.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::base64"))]
        reply: SharedDocument,
    },
    /// A command was answered with `ok: 0`, or its connection broke. Create this event with
    /// [`CommandInfo::failed`].
    #[doc(alias = "CommandFailedEvent")]
    CommandFailed {
        /// The command's names and ids.
        #[cfg_attr(feature = "serde", serde(flatten))]
        command: Arc<CommandInfo>,
        /// The time from sending the command until the failure.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
        /// The error. If it is a server's answer to a sensitive command, its message is omitted.
        #[cfg_attr(feature = "serde", serde(rename = "error"))]
        failure: Error,
    },
    /// A server selection has started. Exactly one `ServerSelectionSucceeded` or
    /// `ServerSelectionFailed` follows, before the topology is closed.
    ServerSelectionStarted {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The topology description at the time of the event.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
    },
    /// A server selection is waiting, because no server is suitable. Published at most once for
    /// each selection.
    ServerSelectionWaiting {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The topology description at the time of the event.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
        /// The remaining time before the selection fails; `None` for no limit.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        remaining: Option<Duration>,
    },
    /// A server selection has succeeded.
    ServerSelectionSucceeded {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The topology description at the time of the event.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The duration of the selection.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
    },
    /// A server selection has failed.
    ServerSelectionFailed {
        /// The selection.
        #[cfg_attr(feature = "serde", serde(flatten))]
        selection: Arc<Selection>,
        /// The topology description at the time of the event.
        #[cfg_attr(feature = "serde", serde(skip))]
        description: Arc<TopologyDescription>,
        /// The kind of failure, for counters.
        reason: SelectionFailure,
        /// A human-readable description of the failure, without the topology description.
        failure: Arc<str>,
        /// The duration of the selection.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        duration: Duration,
    },
    /// A round trip to a server was measured, either by a check or separately while checks wait for
    /// changes. The specification has no such event.
    RttMeasured {
        /// The server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// The server's round-trip times, including this one.
        rtt: Rtt,
    },
    /// An input to the topology. The events that result from it follow directly; only events of
    /// selections, connections and commands can come between them.
    #[cfg_attr(feature = "serde", serde(untagged))]
    Input(Arc<RecordedInput>),
}

impl EventKind {
    /// Returns the address of the server that the event concerns, if any.
    pub fn address(&self) -> Option<&ServerAddress> {
        match self {
            Self::ServerOpening { address, .. }
            | Self::ServerClosed { address, .. }
            | Self::ServerUnusable { address, .. }
            | Self::ServerSuspected { address, .. }
            | Self::ServerSuspicionEnded { address, .. }
            | Self::PoolCreated { address, .. }
            | Self::PoolReady { address, .. }
            | Self::PoolCleared { address, .. }
            | Self::PoolClosed { address, .. }
            | Self::ConnectionCreated { address, .. }
            | Self::ConnectionReady { address, .. }
            | Self::ConnectionClosed { address, .. }
            | Self::ConnectionCheckOutStarted { address, .. }
            | Self::ConnectionCheckOutFailed { address, .. }
            | Self::ConnectionCheckedOut { address, .. }
            | Self::ConnectionCheckedIn { address, .. }
            | Self::RttMeasured { address, .. }
            | Self::ServerSelectionSucceeded { address, .. } => Some(address),
            Self::ServerDescriptionChanged { new, .. } => Some(&new.address),
            Self::ServerHeartbeatStarted(heartbeat)
            | Self::ServerHeartbeatSucceeded { heartbeat, .. }
            | Self::ServerHeartbeatFailed { heartbeat, .. } => Some(&heartbeat.address),
            Self::CommandStarted { command, .. }
            | Self::CommandSucceeded { command, .. }
            | Self::CommandFailed { command, .. } => Some(&command.address),
            Self::TopologyOpening
            | Self::TopologyDescriptionChanged { .. }
            | Self::TopologyClosed
            | Self::ConfigWarning(_)
            | Self::MembersIgnored { .. }
            | Self::TopologyEmptied
            | Self::SrvHostsIgnored { .. }
            | Self::SrvLookupFailed { .. }
            | Self::EventsDropped { .. }
            | Self::ServerSelectionStarted { .. }
            | Self::ServerSelectionWaiting { .. }
            | Self::ServerSelectionFailed { .. }
            | Self::Input(_) => None,
        }
    }
}

impl EventName {
    /// All names, in the order of [`index`](Self::index).
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the specification's name, such as `ServerHeartbeatStarted`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the name's index in [`ALL`](Self::ALL), for sets and tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl EventKind {
    /// Returns the kind without its payload.
    pub fn name(&self) -> EventName {
        self.into()
    }
}

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
        // The names omit the word "event", which is part of the type's name (J-11).
        let specified = "TopologyOpening TopologyDescriptionChanged TopologyClosed ServerOpening \
             ServerDescriptionChanged ServerClosed ServerHeartbeatStarted ServerHeartbeatSucceeded \
             ServerHeartbeatFailed PoolCreated PoolReady PoolCleared PoolClosed ConnectionCreated \
             ConnectionReady ConnectionClosed ConnectionCheckOutStarted ConnectionCheckOutFailed \
             ConnectionCheckedOut ConnectionCheckedIn CommandStarted CommandSucceeded CommandFailed";
        for text in specified.split_whitespace() {
            let named = EventName::ALL.iter().filter(|name| name.as_str() == text);
            assert_eq!(named.count(), 1, "{text}");
        }
    }
}
