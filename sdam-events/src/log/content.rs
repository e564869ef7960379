use std::time::Duration;

use sdam_core::{
    address::ServerAddress,
    document::ExtendedJson,
    event::{CheckOutFailure, CommandInfo, ConnectionId, Event, EventKind, Heartbeat, Selection},
    ids::ObjectId,
    pool::PoolOptions,
    topology::TopologyDescription,
};

use super::{Component, LogFields, Value};

impl<'e> LogFields<'e> {
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

/// Converts a duration to whole milliseconds.
fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn shown_id(id: &ObjectId) -> Value<'_> {
    Value::Shown(id)
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
