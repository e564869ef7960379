//! A sink that logs through `tracing`.
//!
//! | component | target |
//! | --- | --- |
//! | topology | `mongodb::topology` |
//! | server selection | `mongodb::server_selection` |
//! | connection | `mongodb::connection` |
//!
//! These are the targets of MongoDB's own Rust driver, so filters can be shared. Fields have the
//! specification's names (`topologyId`, `serverHost`, `durationMS`), see
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
/// // What the MONGODB_LOG_* variables say:
/// let sink = TracingSink::new(LogConfig::from_env(|name| std::env::var(name).ok()));
/// // Everything, and the subscriber's filter decides. This makes each selection an event.
/// let sink = TracingSink::new(LogConfig::all(Severity::Debug));
/// # drop(sink);
/// ```
#[derive(Clone, Debug)]
pub struct TracingSink {
    config: LogConfig,
}

impl TracingSink {
    /// Creates a sink that logs what `config` enables and the subscriber's own filter admits.
    ///
    /// Events for messages that `config` disables are not even built.
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
fn log(message: &LogMessage<'_>) {
    /// Absent values are not recorded by any visitor.
    macro_rules! event {
        ($target:literal, $level:ident) => {{
            let fields = message.fields();
            tracing::event!(
                target: $target,
                Level::$level,
                topologyId = fields.topology_id.map(field::display),
                serverHost = fields.server_host,
                serverPort = fields.server_port,
                driverConnectionId = fields.driver_connection_id,
                serverConnectionId = fields.server_connection_id,
                serviceId = fields.service_id.map(field::display),
                awaited = fields.awaited,
                durationMS = fields.duration_ms,
                reply = fields.reply.map(field::display),
                failure = fields.failure.map(field::display),
                previousDescription = fields.previous_description.map(field::display),
                newDescription = fields.new_description.map(field::display),
                selector = fields.selector,
                operation = fields.operation,
                operationId = fields.operation_id,
                topologyDescription = fields.topology_description.map(field::display),
                remainingTimeMS = fields.remaining_time_ms,
                warning = fields.warning.map(field::display),
                ignored = fields.ignored,
                limit = fields.limit,
                dropped = fields.dropped,
                reason = fields.reason.map(field::display),
                "{}",
                message.text()
            );
        }};
    }
    match (message.component(), message.severity()) {
        (Component::Topology, Severity::Warn) => event!("mongodb::topology", WARN),
        (Component::Topology, _) => event!("mongodb::topology", DEBUG),
        (Component::ServerSelection, Severity::Info) => event!("mongodb::server_selection", INFO),
        (Component::ServerSelection, _) => event!("mongodb::server_selection", DEBUG),
        (Component::Connection | Component::Command, _) => event!("mongodb::connection", DEBUG),
    }
}
