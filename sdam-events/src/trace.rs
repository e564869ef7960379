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
    log::{Component, LogConfig, LogMessage, Severity, Value},
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

/// Logs `message`. The macro requires constants for target and level, so each pair has its own
/// call. The list of fields also differs by component, because a `tracing` event has at most 32
/// fields.
fn log(message: &LogMessage<'_>) {
    let recorded = |name| Some(recorded(message.fields().get(name)?));
    macro_rules! event {
        ($target:literal, $level:ident, $($name:ident)*) => {
            tracing::event!(
                target: $target,
                Level::$level,
                $($name = recorded(stringify!($name)),)*
                "{}",
                message.text()
            )
        };
    }
    macro_rules! topology {
        ($level:ident) => {
            event!(
                "mongodb::topology", $level,
                topologyId serverHost serverPort driverConnectionId serverConnectionId
                awaited durationMS reply failure previousDescription newDescription warning
                ignored limit srvName domain hosts remainingTimeMS dropped reason
            )
        };
    }
    macro_rules! selection {
        ($level:ident) => {
            event!(
                "mongodb::server_selection", $level,
                selector operation operationId topologyDescription remainingTimeMS serverHost
                serverPort failure
            )
        };
    }
    match (message.component(), message.severity()) {
        (Component::Topology, Severity::Warn) => topology!(WARN),
        (Component::Topology, Severity::Info) => topology!(INFO),
        (Component::Topology, _) => topology!(DEBUG),
        (Component::ServerSelection, Severity::Info) => selection!(INFO),
        (Component::ServerSelection, _) => selection!(DEBUG),
        (Component::Connection, _) => event!(
            "mongodb::connection", DEBUG,
            topologyId serverHost serverPort driverConnectionId serverConnectionId serviceId
            durationMS reason error maxIdleTimeMS minPoolSize maxPoolSize maxConnecting
            waitQueueTimeoutMS
        ),
        (Component::Command, _) => event!(
            "mongodb::command", DEBUG,
            command commandName databaseName requestId operationId serverHost serverPort
            driverConnectionId serverConnectionId serviceId durationMS reply failure
        ),
    }
}

/// Returns the value as `tracing` records it.
fn recorded(value: Value<'_>) -> Box<dyn tracing::Value + '_> {
    match value {
        Value::Text(text) => Box::new(text.to_owned()),
        Value::Integer(number) => Box::new(number),
        Value::Number(number) => Box::new(number),
        Value::Bool(truth) => Box::new(truth),
        shown => Box::new(field::display(shown)),
    }
}
