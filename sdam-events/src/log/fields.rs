use std::{
    fmt::{self, Display},
    time::Duration,
};

use sdam_core::{
    Joined,
    address::ServerAddress,
    document::ExtendedJson,
    error::Error,
    event::{CheckOutFailure, CommandInfo, ConnectionId, Event, EventKind, Heartbeat, Selection},
    ids::ObjectId,
    pool::PoolOptions,
    topology::{Obstacle, TopologyDescription},
};

use super::Component;

/// The named values of a log message; absent values are omitted, never null.
///
/// The names are those of the specification:
///
/// | name | value |
/// | --- | --- |
/// | `topologyId`, `serviceId` | ids in hexadecimal digits |
/// | `serverHost` | the host, without brackets if it is an IPv6 literal; or the path of a Unix domain socket |
/// | `serverPort` | absent for Unix domain sockets |
/// | `driverConnectionId` | the number that the client has assigned to the connection |
/// | `serverConnectionId` | the number that the server has assigned to the connection; absent until reported |
/// | `awaited` | whether the server may delay its reply until something changes |
/// | `durationMS` | with a precision of microseconds |
/// | `failure` | the error of a check or a command, or the text of a failed selection |
/// | `error` | the error of the connection, if an error is the reason |
/// | `reply`, `command` | documents, truncated |
/// | `commandName`, `databaseName`, `requestId` | the command's name, database and request id |
/// | `maxIdleTimeMS`, `minPoolSize`, `maxPoolSize`, `maxConnecting`, `waitQueueTimeoutMS` | options that are not the default |
/// | `previousDescription`, `newDescription`, `topologyDescription` | descriptions of the topology |
/// | `selector`, `operation`, `operationId` | the criteria of the selection, and the operation that it is for |
/// | `remainingTimeMS` | the time left for a selection, absent if there is no timeout; or the time until the next look-up |
/// | `warning` | the problem with an option and its consequence |
/// | `ignored`, `limit` | the number of members that did not join, and the maximum number of servers |
/// | `srvName`, `domain`, `hosts` | an SRV record, the domain to which its hosts must belong, and the hosts that were ignored |
/// | `dropped` | the number of events dropped so far because the sink is too slow |
/// | `reason` | the reason why the server was removed or cannot be used, the connection was closed, or the check-out failed |
#[derive(Clone, Debug, Default)]
pub struct LogFields<'e>(Vec<(&'static str, Value<'e>)>);

impl<'e> LogFields<'e> {
    /// Returns the value with this name.
    pub fn get(&self, name: &str) -> Option<Value<'e>> {
        self.iter().find_map(|(own, value)| (own == name).then_some(value))
    }

    /// Returns the name and the value of each field that is present.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static str, Value<'e>)> {
        self.0.iter().copied()
    }

    /// Returns the fields of the message for `event`.
    pub(super) fn of(event: &'e Event, max_document_length: usize) -> Self {
        let shown =
            |document| Value::Document(ExtendedJson::new(document).limited_to(max_document_length));
        let kind = &event.kind;
        let topology = || Self::default().with("topologyId", Value::Shown(&event.topology));
        match Component::of(kind.name()) {
            Component::Topology => discovery(topology(), kind, shown),
            Component::Connection => connection(topology(), kind),
            Component::Command => command(kind, shown),
            Component::ServerSelection => selection(kind),
        }
    }

    fn with(self, name: &'static str, value: impl Into<Value<'e>>) -> Self {
        self.with_some(name, Some(value))
    }

    fn with_some(mut self, name: &'static str, value: Option<impl Into<Value<'e>>>) -> Self {
        self.0.extend(value.map(|value| (name, value.into())));
        self
    }
}

/// The value of a field of a log message.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Value<'e> {
    /// A string.
    Text(&'e str),
    /// An id, a topology, a warning or a reason, formatted as a string.
    Shown(&'e (dyn Display + Sync)),
    /// A document.
    Document(ExtendedJson<'e>),
    /// An error, with its causes.
    Error(&'e Error),
    /// The reason why a server cannot be used, and the remedy.
    Obstacle(&'e Obstacle),
    /// Addresses, separated by commas.
    Hosts(&'e [ServerAddress]),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// A boolean.
    Bool(bool),
}

macro_rules! from {
    ($($type:ty: $variant:ident;)*) => {$(
        impl<'e> From<$type> for Value<'e> {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

from! {
    &'e str: Text;
    &'e Error: Error;
    bool: Bool;
    i32: Integer;
    i64: Integer;
    u16: Integer;
    u32: Integer;
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Shown(value) => value.fmt(f),
            Self::Document(document) => document.fmt(f),
            Self::Error(error) => write!(f, "{error:#}"),
            Self::Obstacle(obstacle) => write!(f, "{obstacle}; {}", obstacle.remedy()),
            Self::Hosts(hosts) => Joined(*hosts, ", ").fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(_) | Self::Number(_) | Self::Bool(_) => Display::fmt(self, f),
            text => write!(f, "{:?}", text.to_string()),
        }
    }
}

/// Returns the fields of messages about topology, servers and checks.
fn discovery<'e>(
    fields: LogFields<'e>,
    kind: &'e EventKind,
    shown: impl Fn(&'e [u8]) -> Value<'e>,
) -> LogFields<'e> {
    match kind {
        EventKind::ServerOpening { address, .. } => fields.server(address),
        EventKind::ServerClosed { address, reason, .. } => {
            fields.server(address).with("reason", Value::Shown(reason))
        }
        EventKind::ServerUnusable { address, obstacle, .. } => {
            fields.server(address).with("reason", Value::Obstacle(obstacle))
        }
        EventKind::ServerSuspected { address, silence, .. } => {
            fields.server(address).lasted(*silence)
        }
        EventKind::ServerSuspicionEnded { address, duration, answered, .. } => fields
            .server(address)
            .lasted(*duration)
            .with("reason", if *answered { "answered" } else { "lost" }),
        EventKind::TopologyDescriptionChanged { previous, new } => fields
            .with("previousDescription", Value::Shown(previous))
            .with("newDescription", Value::Shown(new)),
        EventKind::ConfigWarning(warning) => fields.with("warning", Value::Shown(warning)),
        EventKind::MembersIgnored { ignored, limit } => {
            fields.with("ignored", *ignored as i64).with("limit", *limit as i64)
        }
        EventKind::SrvHostsIgnored { name, domain, hosts } => fields
            .with("srvName", &**name)
            .with("domain", &**domain)
            .with("hosts", Value::Hosts(hosts)),
        EventKind::SrvLookupFailed { name, failure, next } => fields
            .with("srvName", &**name)
            .with("failure", failure)
            .with("remainingTimeMS", whole_millis(*next)),
        EventKind::EventsDropped { total } => fields.with("dropped", *total as i64),
        EventKind::ServerHeartbeatStarted(heartbeat) => fields.heartbeat(heartbeat),
        EventKind::ServerHeartbeatSucceeded { heartbeat, duration, reply } => {
            fields.heartbeat(heartbeat).lasted(*duration).with("reply", shown(reply))
        }
        EventKind::ServerHeartbeatFailed { heartbeat, duration, failure } => {
            fields.heartbeat(heartbeat).lasted(*duration).with("failure", failure)
        }
        _ => fields,
    }
}

/// Returns the fields of messages about pools and their connections (CMAP: "Connection Pool
/// Logging").
fn connection<'e>(fields: LogFields<'e>, kind: &'e EventKind) -> LogFields<'e> {
    match kind {
        EventKind::PoolCreated { address, options, .. } => fields.server(address).pool(options),
        EventKind::PoolReady { address, .. }
        | EventKind::PoolClosed { address, .. }
        | EventKind::ConnectionCheckOutStarted { address, .. } => fields.server(address),
        EventKind::PoolCleared { address, clear, .. } => {
            fields.server(address).with_some("serviceId", clear.service_id.as_ref().map(shown_id))
        }
        EventKind::ConnectionCreated { address, connection, .. }
        | EventKind::ConnectionCheckedIn { address, connection, .. } => {
            fields.connection(address, connection)
        }
        EventKind::ConnectionReady { address, connection, duration, .. }
        | EventKind::ConnectionCheckedOut { address, connection, duration, .. } => {
            fields.connection(address, connection).lasted(*duration)
        }
        EventKind::ConnectionClosed { address, connection, reason, error, .. } => fields
            .connection(address, connection)
            .with("reason", reason.text())
            .with_some("error", error.as_ref()),
        EventKind::ConnectionCheckOutFailed { address, reason, failure, duration, .. } => {
            let error = (*reason == CheckOutFailure::ConnectionError).then_some(&**failure);
            let fields = fields.server(address).lasted(*duration);
            fields.with("reason", reason.text()).with_some("error", error)
        }
        _ => fields,
    }
}

/// Returns the fields of messages about commands. These messages do not name the topology (Command
/// Logging and Monitoring: "Common Fields").
fn command<'e>(kind: &'e EventKind, shown: impl Fn(&'e [u8]) -> Value<'e>) -> LogFields<'e> {
    match kind {
        EventKind::CommandStarted { command, document } => {
            LogFields::command(command).with("command", shown(document))
        }
        EventKind::CommandSucceeded { command, duration, reply } => {
            LogFields::command(command).lasted(*duration).with("reply", shown(reply))
        }
        EventKind::CommandFailed { command, duration, failure } => {
            LogFields::command(command).lasted(*duration).with("failure", failure)
        }
        _ => LogFields::default(),
    }
}

/// Returns the fields of messages about selections. These messages do not name the topology (Server
/// Selection: "Common Fields").
fn selection(kind: &EventKind) -> LogFields<'_> {
    match kind {
        EventKind::ServerSelectionStarted { selection, description } => {
            LogFields::selection(selection, description)
        }
        EventKind::ServerSelectionWaiting { selection, description, remaining } => {
            LogFields::selection(selection, description)
                .with_some("remainingTimeMS", remaining.map(whole_millis))
        }
        EventKind::ServerSelectionSucceeded { selection, description, address, .. } => {
            LogFields::selection(selection, description).server(address)
        }
        EventKind::ServerSelectionFailed { selection, description, failure, .. } => {
            LogFields::selection(selection, description).with("failure", &**failure)
        }
        _ => LogFields::default(),
    }
}

impl<'e> LogFields<'e> {
    fn server(self, address: &'e ServerAddress) -> Self {
        self.with("serverHost", address.host()).with_some("serverPort", address.port())
    }

    fn lasted(self, duration: Duration) -> Self {
        self.with("durationMS", Value::Number(duration.as_micros() as f64 / 1000.0))
    }

    fn heartbeat(self, heartbeat: &'e Heartbeat) -> Self {
        let fields = self.connection(&heartbeat.address, &heartbeat.connection);
        fields.with("awaited", heartbeat.awaited)
    }

    fn connection(self, address: &'e ServerAddress, connection: &ConnectionId) -> Self {
        self.server(address)
            .with("driverConnectionId", connection.driver as i64)
            .with_some("serverConnectionId", connection.server)
    }

    /// Adds the pool options that differ from their defaults.
    fn pool(self, options: &PoolOptions) -> Self {
        let default = PoolOptions::default();
        let changed = |own: u32, default: u32| (own != default).then_some(own);
        self.with_some("maxIdleTimeMS", options.max_idle_time.map(whole_millis))
            .with_some("minPoolSize", changed(options.min_pool_size, default.min_pool_size))
            .with_some("maxPoolSize", changed(options.max_pool_size, default.max_pool_size))
            .with_some("maxConnecting", changed(options.max_connecting, default.max_connecting))
            .with_some("waitQueueTimeoutMS", options.wait_queue_timeout.map(whole_millis))
    }

    fn command(command: &'e CommandInfo) -> Self {
        Self::default()
            .connection(&command.address, &command.connection)
            .with("commandName", &*command.name)
            .with("databaseName", &*command.database)
            .with("requestId", command.request_id)
            .with_some("operationId", command.operation_id)
            .with_some("serviceId", command.service_id.as_ref().map(shown_id))
    }

    fn selection(selection: &'e Selection, description: &'e TopologyDescription) -> Self {
        Self::default()
            .with("selector", &*selection.selector)
            .with_some("operation", selection.operation.as_deref())
            .with_some("operationId", selection.operation_id)
            .with("topologyDescription", Value::Shown(description))
    }
}

/// Converts a duration to whole milliseconds.
fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn shown_id(id: &ObjectId) -> Value<'_> {
    Value::Shown(id)
}
