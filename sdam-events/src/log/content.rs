use std::time::Duration;

use sdam_core::{
    address::ServerAddress,
    document::ExtendedJson,
    event::{CheckOutFailure, CommandInfo, ConnectionId, Event, EventKind, Heartbeat, Selection},
    pool::PoolOptions,
    topology::TopologyDescription,
};

use super::fields::{Failure, HostList, LogFields, Reason};

impl<'e> LogFields<'e> {
    /// Returns the fields of the message for `event`.
    pub(super) fn of(event: &'e Event, max_document_length: usize) -> Self {
        let shown = |document| ExtendedJson::new(document).limited_to(max_document_length);
        let common = Self { topology_id: Some(event.topology), ..Self::default() };
        let kind = &event.kind;
        discovery(common.clone(), kind, shown)
            .or_else(|| connection(common.clone(), kind))
            .or_else(|| command(kind, shown))
            .or_else(|| selection(kind))
            .unwrap_or(common)
    }
}

/// Returns the fields of messages about topology, servers and checks.
fn discovery<'e>(
    fields: LogFields<'e>,
    kind: &'e EventKind,
    shown: impl Fn(&'e [u8]) -> ExtendedJson<'e>,
) -> Option<LogFields<'e>> {
    Some(match kind {
        EventKind::ServerOpening { address, .. } => fields.server(address),
        EventKind::ServerClosed { address, reason, .. } => {
            LogFields { reason: Some(Reason::Departure(reason)), ..fields.server(address) }
        }
        EventKind::ServerUnusable { address, obstacle, .. } => {
            LogFields { reason: Some(Reason::Obstacle(obstacle)), ..fields.server(address) }
        }
        EventKind::ServerSuspected { address, silence, .. } => {
            LogFields { duration_ms: Some(millis(*silence)), ..fields.server(address) }
        }
        EventKind::ServerSuspicionEnded { address, duration, answered, .. } => LogFields {
            duration_ms: Some(millis(*duration)),
            reason: Some(Reason::Text(if *answered { "answered" } else { "lost" })),
            ..fields.server(address)
        },
        EventKind::TopologyDescriptionChanged { previous, new } => {
            LogFields { previous_description: Some(previous), new_description: Some(new), ..fields }
        }
        EventKind::ConfigWarning(warning) => LogFields { warning: Some(warning), ..fields },
        EventKind::MembersIgnored { ignored, limit } => {
            LogFields { ignored: Some(*ignored), limit: Some(*limit), ..fields }
        }
        EventKind::SrvHostsIgnored { name, domain, hosts } => LogFields {
            srv_name: Some(name),
            domain: Some(domain),
            hosts: Some(HostList(hosts)),
            ..fields
        },
        EventKind::SrvLookupFailed { name, failure, next } => LogFields {
            srv_name: Some(name),
            failure: Some(Failure::Error(failure)),
            remaining_time_ms: Some(whole_millis(*next)),
            ..fields
        },
        EventKind::EventsDropped { total } => LogFields { dropped: Some(*total), ..fields },
        EventKind::ServerHeartbeatStarted(heartbeat) => fields.heartbeat(heartbeat),
        EventKind::ServerHeartbeatSucceeded { heartbeat, duration, reply } => LogFields {
            duration_ms: Some(millis(*duration)),
            reply: Some(shown(reply)),
            ..fields.heartbeat(heartbeat)
        },
        EventKind::ServerHeartbeatFailed { heartbeat, duration, failure } => LogFields {
            duration_ms: Some(millis(*duration)),
            failure: Some(Failure::Error(failure)),
            ..fields.heartbeat(heartbeat)
        },
        _ => return None,
    })
}

/// Returns the fields of messages about pools and their connections (CMAP: "Connection Pool
/// Logging").
fn connection<'e>(fields: LogFields<'e>, kind: &'e EventKind) -> Option<LogFields<'e>> {
    Some(match kind {
        EventKind::PoolCreated { address, options, .. } => fields.server(address).pool(options),
        EventKind::PoolReady { address, .. }
        | EventKind::PoolClosed { address, .. }
        | EventKind::ConnectionCheckOutStarted { address, .. } => fields.server(address),
        EventKind::PoolCleared { address, clear, .. } => {
            LogFields { service_id: clear.service_id, ..fields.server(address) }
        }
        EventKind::ConnectionCreated { address, connection, .. }
        | EventKind::ConnectionCheckedIn { address, connection, .. } => {
            fields.connection(address, connection)
        }
        EventKind::ConnectionReady { address, connection, duration, .. }
        | EventKind::ConnectionCheckedOut { address, connection, duration, .. } => LogFields {
            duration_ms: Some(millis(*duration)),
            ..fields.connection(address, connection)
        },
        EventKind::ConnectionClosed { address, connection, reason, error, .. } => LogFields {
            reason: Some(Reason::Text(reason.text())),
            error: error.as_ref().map(Failure::Error),
            ..fields.connection(address, connection)
        },
        EventKind::ConnectionCheckOutFailed { address, reason, failure, duration, .. } => {
            LogFields {
                reason: Some(Reason::Text(reason.text())),
                error: (*reason == CheckOutFailure::ConnectionError)
                    .then_some(Failure::Text(failure)),
                duration_ms: Some(millis(*duration)),
                ..fields.server(address)
            }
        }
        _ => return None,
    })
}

/// Returns the fields of messages about commands, which do not name the topology (Command Logging
/// and Monitoring: "Common Fields").
fn command<'e>(
    kind: &'e EventKind,
    shown: impl Fn(&'e [u8]) -> ExtendedJson<'e>,
) -> Option<LogFields<'e>> {
    Some(match kind {
        EventKind::CommandStarted { command, document } => {
            LogFields { command: Some(shown(document)), ..LogFields::command(command) }
        }
        EventKind::CommandSucceeded { command, duration, reply } => LogFields {
            duration_ms: Some(millis(*duration)),
            reply: Some(shown(reply)),
            ..LogFields::command(command)
        },
        EventKind::CommandFailed { command, duration, failure } => LogFields {
            duration_ms: Some(millis(*duration)),
            failure: Some(Failure::Error(failure)),
            ..LogFields::command(command)
        },
        _ => return None,
    })
}

/// Returns the fields of messages about selections, which do not name the topology (Server
/// Selection: "Common Fields").
fn selection(kind: &EventKind) -> Option<LogFields<'_>> {
    Some(match kind {
        EventKind::ServerSelectionStarted { selection, description } => {
            LogFields::selection(selection, description)
        }
        EventKind::ServerSelectionWaiting { selection, description, remaining } => LogFields {
            remaining_time_ms: remaining.map(whole_millis),
            ..LogFields::selection(selection, description)
        },
        EventKind::ServerSelectionSucceeded { selection, description, address, .. } => {
            LogFields::selection(selection, description).server(address)
        }
        EventKind::ServerSelectionFailed { selection, description, failure, .. } => LogFields {
            failure: Some(Failure::Text(failure)),
            ..LogFields::selection(selection, description)
        },
        _ => return None,
    })
}

/// Converts to whole milliseconds.
fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Converts to fractional milliseconds, with a precision of microseconds.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

impl<'e> LogFields<'e> {
    fn server(self, address: &'e ServerAddress) -> Self {
        Self { server_host: Some(address.host()), server_port: address.port(), ..self }
    }

    fn heartbeat(self, heartbeat: &'e Heartbeat) -> Self {
        Self {
            awaited: Some(heartbeat.awaited),
            ..self.connection(&heartbeat.address, &heartbeat.connection)
        }
    }

    fn connection(self, address: &'e ServerAddress, connection: &ConnectionId) -> Self {
        Self {
            driver_connection_id: Some(connection.driver),
            server_connection_id: connection.server,
            ..self.server(address)
        }
    }

    /// Adds the options that differ from their defaults.
    fn pool(self, options: &PoolOptions) -> Self {
        let default = PoolOptions::default();
        let changed = |own: u32, default: u32| (own != default).then_some(own);
        Self {
            max_idle_time_ms: options.max_idle_time.map(whole_millis),
            min_pool_size: changed(options.min_pool_size, default.min_pool_size),
            max_pool_size: changed(options.max_pool_size, default.max_pool_size),
            max_connecting: changed(options.max_connecting, default.max_connecting),
            wait_queue_timeout_ms: options.wait_queue_timeout.map(whole_millis),
            ..self
        }
    }

    fn command(command: &'e CommandInfo) -> Self {
        Self {
            command_name: Some(&command.name),
            database_name: Some(&command.database),
            request_id: Some(command.request_id),
            operation_id: command.operation_id,
            service_id: command.service_id,
            ..Self::default().connection(&command.address, &command.connection)
        }
    }

    fn selection(selection: &'e Selection, description: &'e TopologyDescription) -> Self {
        Self {
            selector: Some(&selection.selector),
            operation: selection.operation.as_deref(),
            operation_id: selection.operation_id,
            topology_description: Some(description),
            ..Self::default()
        }
    }
}
