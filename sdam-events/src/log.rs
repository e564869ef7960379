//! Log messages for events, with the texts of the specification (SDAM: "Log Messages", Server
//! Selection: "Logging", Logging: "Log Components").
//!
//! A [`LogMessage`] is structured: a fixed text, and named [`LogFields`]. Its `Display` is the
//! specification's unstructured sentence, for loggers without fields.
//! The `trace` module passes it to `tracing`; for another logger a sink takes a few lines:
//!
//! ```
//! use sdam_events::{log::{LogConfig, LogMessage}, sink::sink_fn};
//!
//! let config = LogConfig::from_env(|name| std::env::var(name).ok());
//! let sink = sink_fn({
//!     let config = config.clone();
//!     move |event| {
//!         if let Some(message) = LogMessage::of(event, config.max_document_length)
//!             && config.enables(message.component(), message.severity())
//!         {
//!             eprintln!("{message}");
//!         }
//!     }
//! })
//! .interested_in(config.interest());
//! # drop(sink);
//! ```
//!
//! Of the messages about connections, only the two below are written here. The others are the duty
//! of the connection pool, which opens, checks out and closes connections (K-11).
//!
//! | event | component | severity | text |
//! | --- | --- | --- | --- |
//! | `TopologyOpening` | topology | debug | Starting topology monitoring |
//! | `TopologyClosed` | topology | debug | Stopped topology monitoring |
//! | `ServerOpening` | topology | debug | Starting server monitoring |
//! | `ServerClosed` | topology | debug | Stopped server monitoring |
//! | `TopologyDescriptionChanged` | topology | debug | Topology description changed |
//! | `ServerDescriptionChanged` | - | - | none, on purpose |
//! | `ConfigWarning` (ours) | topology | warn | Configuration warning |
//! | `MembersIgnored` (ours) | topology | warn | Members ignored |
//! | `TopologyEmptied` (ours) | topology | warn | Last server left topology |
//! | `EventsDropped` (ours) | topology | warn | Events dropped |
//! | `ServerHeartbeatStarted` | topology | debug | Server heartbeat started |
//! | `ServerHeartbeatSucceeded` | topology | debug | Server heartbeat succeeded |
//! | `ServerHeartbeatFailed` | topology | debug | Server heartbeat failed |
//! | `PoolReady` | connection | debug | Connection pool ready |
//! | `PoolCleared`, unless the pool was paused | connection | debug | Connection pool cleared |
//! | `ServerSelectionStarted` | server selection | debug | Server selection started |
//! | `ServerSelectionWaiting` | server selection | info | Waiting for suitable server to become available |
//! | `ServerSelectionSucceeded` | server selection | debug | Server selection succeeded |
//! | `ServerSelectionFailed` | server selection | debug | Server selection failed |

use std::{fmt, time::Duration};

use sdam_core::{
    address::ServerAddress,
    error::ServerError,
    event::{Event, EventKind, EventName, Heartbeat, Selection},
    ids::ObjectId,
    options::Warning,
    topology::{DepartureReason, TopologyDescription},
};

use crate::ext_json::ExtendedJson;

mod config;
mod fields;
#[cfg(test)]
mod tests;
mod unstructured;

pub use config::{Component, DEFAULT_MAX_DOCUMENT_LENGTH, LogConfig, LogOutput, Severity};
pub use fields::{LogFields, Value};

/// The log message for one event.
#[derive(Clone, Debug)]
pub struct LogMessage<'e> {
    name: EventName,
    text: &'static str,
    fields: LogFields<'e>,
}

impl<'e> LogMessage<'e> {
    /// Returns the message for `event`, if any; cuts documents after `max_document_length`
    /// characters.
    pub fn of(event: &'e Event, max_document_length: usize) -> Option<Self> {
        // CMAP: clearing a pool that is paused already publishes no event.
        if matches!(&event.kind, EventKind::PoolCleared { clear, .. } if clear.was_paused) {
            return None;
        }
        let name = event.kind.name();
        Some(Self {
            name,
            text: text(name)?,
            fields: fields(event, max_document_length),
        })
    }

    /// Returns the message's text, the same for all events of one name.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// Returns the named values of the message.
    pub fn fields(&self) -> &LogFields<'e> {
        &self.fields
    }

    /// Returns the name of the event.
    pub fn name(&self) -> EventName {
        self.name
    }

    /// Returns the component that logs the message.
    pub fn component(&self) -> Component {
        Component::of(self.name)
    }

    /// Returns the severity of the message.
    pub fn severity(&self) -> Severity {
        Severity::of(self.name)
    }
}

/// The error text of a failed check or selection.
#[derive(Clone, Copy, Debug)]
pub enum Failure<'e> {
    /// A failed check.
    Check(&'e ServerError),
    /// A failed server selection.
    Selection(&'e str),
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(error) => error.fmt(f),
            Self::Selection(text) => f.write_str(text),
        }
    }
}

fn text(name: EventName) -> Option<&'static str> {
    Some(match name {
        EventName::TopologyOpening => "Starting topology monitoring",
        EventName::TopologyClosed => "Stopped topology monitoring",
        EventName::ServerOpening => "Starting server monitoring",
        EventName::ServerClosed => "Stopped server monitoring",
        EventName::TopologyDescriptionChanged => "Topology description changed",
        EventName::ConfigWarning => "Configuration warning",
        EventName::MembersIgnored => "Members ignored",
        EventName::TopologyEmptied => "Last server left topology",
        EventName::EventsDropped => "Events dropped",
        EventName::ServerHeartbeatStarted => "Server heartbeat started",
        EventName::ServerHeartbeatSucceeded => "Server heartbeat succeeded",
        EventName::ServerHeartbeatFailed => "Server heartbeat failed",
        EventName::PoolReady => "Connection pool ready",
        EventName::PoolCleared => "Connection pool cleared",
        EventName::ServerSelectionStarted => "Server selection started",
        EventName::ServerSelectionWaiting => "Waiting for suitable server to become available",
        EventName::ServerSelectionSucceeded => "Server selection succeeded",
        EventName::ServerSelectionFailed => "Server selection failed",
        _ => return None,
    })
}

fn fields(event: &Event, max_document_length: usize) -> LogFields<'_> {
    let fields = LogFields {
        topology_id: Some(event.topology),
        ..LogFields::default()
    };
    match &event.kind {
        EventKind::ServerOpening { address, .. } | EventKind::PoolReady { address, .. } => {
            fields.server(address)
        }
        EventKind::ServerClosed {
            address, reason, ..
        } => LogFields {
            reason: Some(reason),
            ..fields.server(address)
        },
        EventKind::PoolCleared { address, clear, .. } => LogFields {
            service_id: clear.service_id,
            ..fields.server(address)
        },
        EventKind::TopologyDescriptionChanged { previous, new } => LogFields {
            previous_description: Some(previous),
            new_description: Some(new),
            ..fields
        },
        EventKind::ConfigWarning(warning) => LogFields {
            warning: Some(warning),
            ..fields
        },
        EventKind::MembersIgnored { ignored, limit } => LogFields {
            ignored: Some(*ignored),
            limit: Some(*limit),
            ..fields
        },
        EventKind::EventsDropped { total } => LogFields {
            dropped: Some(*total),
            ..fields
        },
        EventKind::ServerHeartbeatStarted(heartbeat) => fields.heartbeat(heartbeat),
        EventKind::ServerHeartbeatSucceeded {
            heartbeat,
            duration,
            reply,
        } => LogFields {
            duration_ms: Some(millis(*duration)),
            reply: Some(ExtendedJson::new(reply).limited_to(max_document_length)),
            ..fields.heartbeat(heartbeat)
        },
        EventKind::ServerHeartbeatFailed {
            heartbeat,
            duration,
            failure,
        } => LogFields {
            duration_ms: Some(millis(*duration)),
            failure: Some(Failure::Check(failure)),
            ..fields.heartbeat(heartbeat)
        },
        kind => selection_fields(kind).unwrap_or(fields),
    }
}

/// Returns the fields of messages about selections, which do not name the topology (Server
/// Selection: "Common Fields").
fn selection_fields(kind: &EventKind) -> Option<LogFields<'_>> {
    Some(match kind {
        EventKind::ServerSelectionStarted {
            selection,
            description,
        } => LogFields::selection(selection, description),
        EventKind::ServerSelectionWaiting {
            selection,
            description,
            remaining,
        } => LogFields {
            remaining_time_ms: remaining
                .map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
            ..LogFields::selection(selection, description)
        },
        EventKind::ServerSelectionSucceeded {
            selection,
            description,
            address,
            ..
        } => LogFields::selection(selection, description).server(address),
        EventKind::ServerSelectionFailed {
            selection,
            description,
            failure,
            ..
        } => LogFields {
            failure: Some(Failure::Selection(failure)),
            ..LogFields::selection(selection, description)
        },
        _ => return None,
    })
}

/// Converts to milliseconds, with microseconds as the fraction.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

impl<'e> LogFields<'e> {
    fn server(self, address: &'e ServerAddress) -> Self {
        Self {
            server_host: Some(address.host()),
            server_port: address.port(),
            ..self
        }
    }

    fn heartbeat(self, heartbeat: &'e Heartbeat) -> Self {
        Self {
            driver_connection_id: Some(heartbeat.connection.driver),
            server_connection_id: heartbeat.connection.server,
            awaited: Some(heartbeat.awaited),
            ..self.server(&heartbeat.address)
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
