//! A sink that logs through `tracing`.
//!
//! | component | target |
//! | --- | --- |
//! | topology | `mongodb::topology` |
//! | server selection | `mongodb::server_selection` |
//! | connection | `mongodb::connection` |
//! | command | `mongodb::command` |
//!
//! The targets are the same as in MongoDB's own Rust driver, so filters can be shared. Fields have
//! the specification's names (`topologyId`, `serverHost`, `durationMS`), see
//! [`LogFields`](crate::log::LogFields); absent fields are not recorded. Failures of delivery
//! itself are logged under the target `sdam::events`.

use sdam_core::event::Event;
use tracing::{Level, field};

use crate::{
    log::{Component, LogConfig, LogMessage, Severity},
    sink::{EventSink, Interest},
};

#[cfg(test)]
mod tests;

/// A sink that logs events through `tracing`.
///
/// ```
/// use sdam_events::{log::{LogConfig, Severity}, trace::TracingSink};
///
/// // The events selected by the MONGODB_LOG_* variables:
/// let sink = TracingSink::new(LogConfig::from_env(|name| std::env::var(name).ok()));
/// // Everything, filtered by the subscriber. This creates events for each selection,
/// // check-out and command.
/// let sink = TracingSink::new(LogConfig::all(Severity::Debug));
/// # drop(sink);
/// ```
#[derive(Clone, Debug)]
pub struct TracingSink {
    config: LogConfig,
}

impl TracingSink {
    /// Creates a sink that logs messages enabled by both `config` and the subscriber's own filter.
    ///
    /// For messages disabled by `config`, events are not even built.
    pub fn new(config: LogConfig) -> Self {
        Self { config }
    }
}

impl EventSink for TracingSink {
    fn emit(&self, event: &Event) {
        if let Some(message) = LogMessage::of(event, self.config.max_document_length)
            && self.config.enables(message.component(), message.severity())
        {
            log(&message);
        }
    }

    fn interest(&self) -> Interest {
        self.config.interest()
    }
}

/// Logs `message`. Target and level must be constants in the macro, so each pair has its own call.
/// So does each component, because a `tracing` event has at most 32 fields.
fn log(message: &LogMessage<'_>) {
    let fields = message.fields();
    /// Records the fields of a message; visitors do not see absent values.
    macro_rules! event {
        ($target:literal, $level:ident, { $($own:tt)* }) => {
            tracing::event!(
                target: $target,
                Level::$level,
                serverHost = fields.server_host,
                serverPort = fields.server_port,
                failure = fields.failure.map(field::display),
                $($own)*
                "{}",
                message.text()
            )
        };
    }
    macro_rules! connection_ids {
        ($target:literal, $level:ident, { $($own:tt)* }) => {
            event!($target, $level, {
                driverConnectionId = fields.driver_connection_id,
                serverConnectionId = fields.server_connection_id,
                serviceId = fields.service_id.map(field::display),
                durationMS = fields.duration_ms,
                reply = fields.reply.map(field::display),
                $($own)*
            })
        };
    }
    macro_rules! topology {
        ($level:ident) => {
            connection_ids!("mongodb::topology", $level, {
                topologyId = fields.topology_id.map(field::display),
                awaited = fields.awaited,
                previousDescription = fields.previous_description.map(field::display),
                newDescription = fields.new_description.map(field::display),
                warning = fields.warning.map(field::display),
                ignored = fields.ignored,
                limit = fields.limit,
                srvName = fields.srv_name,
                domain = fields.domain,
                hosts = fields.hosts.map(field::display),
                remainingTimeMS = fields.remaining_time_ms,
                dropped = fields.dropped,
                reason = fields.reason.map(field::display),
            })
        };
    }
    macro_rules! selection {
        ($level:ident) => {
            event!("mongodb::server_selection", $level, {
                selector = fields.selector,
                operation = fields.operation,
                operationId = fields.operation_id,
                topologyDescription = fields.topology_description.map(field::display),
                remainingTimeMS = fields.remaining_time_ms,
            })
        };
    }
    match (message.component(), message.severity()) {
        (Component::Topology, Severity::Warn) => topology!(WARN),
        (Component::Topology, _) => topology!(DEBUG),
        (Component::ServerSelection, Severity::Info) => selection!(INFO),
        (Component::ServerSelection, _) => selection!(DEBUG),
        (Component::Connection, _) => connection_ids!("mongodb::connection", DEBUG, {
            topologyId = fields.topology_id.map(field::display),
            reason = fields.reason.map(field::display),
            error = fields.error.map(field::display),
            maxIdleTimeMS = fields.max_idle_time_ms,
            minPoolSize = fields.min_pool_size,
            maxPoolSize = fields.max_pool_size,
            maxConnecting = fields.max_connecting,
            waitQueueTimeoutMS = fields.wait_queue_timeout_ms,
        }),
        (Component::Command, _) => connection_ids!("mongodb::command", DEBUG, {
            command = fields.command.map(field::display),
            commandName = fields.command_name,
            databaseName = fields.database_name,
            requestId = fields.request_id,
            operationId = fields.operation_id,
        }),
    }
}
