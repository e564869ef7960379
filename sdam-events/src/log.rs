//! Log messages for events, as worded by the specifications (SDAM: "Log Messages", Server
//! Selection: "Logging", Logging: "Log Components").
//!
//! A [`LogMessage`] is structured: it consists of a fixed message and named [`LogFields`]. For
//! loggers that do not support fields, its `Display` prints the specification's unstructured
//! sentence. The `trace` module passes messages to `tracing`; a sink for another logger takes only
//! a few lines:
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
//! Messages about connections and commands are made from the events that pools and the client
//! publish (K-11; CMAP: "Connection Pool Logging", Command Logging and Monitoring: "Log Messages").
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
//! | `SrvHostsIgnored` (ours) | topology | warn | SRV hosts ignored |
//! | `SrvLookupFailed` (ours) | topology | warn | SRV look-up failed |
//! | `ServerUnusable` (ours) | topology | warn | Server unusable |
//! | `ServerSuspected` (ours) | topology | warn | Server suspected |
//! | `ServerSuspicionEnded` (ours) | topology | info | Server suspicion ended |
//! | `EventsDropped` (ours) | topology | warn | Events dropped |
//! | `ServerHeartbeatStarted` | topology | debug | Server heartbeat started |
//! | `ServerHeartbeatSucceeded` | topology | debug | Server heartbeat succeeded |
//! | `ServerHeartbeatFailed` | topology | debug | Server heartbeat failed |
//! | `PoolCreated` | connection | debug | Connection pool created |
//! | `PoolReady` | connection | debug | Connection pool ready |
//! | `PoolCleared` | connection | debug | Connection pool cleared |
//! | `PoolClosed` | connection | debug | Connection pool closed |
//! | `ConnectionCreated` | connection | debug | Connection created |
//! | `ConnectionReady` | connection | debug | Connection ready |
//! | `ConnectionClosed` | connection | debug | Connection closed |
//! | `ConnectionCheckOutStarted` | connection | debug | Connection checkout started |
//! | `ConnectionCheckOutFailed` | connection | debug | Connection checkout failed |
//! | `ConnectionCheckedOut` | connection | debug | Connection checked out |
//! | `ConnectionCheckedIn` | connection | debug | Connection checked in |
//! | `CommandStarted` | command | debug | Command started |
//! | `CommandSucceeded` | command | debug | Command succeeded |
//! | `CommandFailed` | command | debug | Command failed |
//! | `ServerSelectionStarted` | server selection | debug | Server selection started |
//! | `ServerSelectionWaiting` | server selection | info | Waiting for suitable server to become available |
//! | `ServerSelectionSucceeded` | server selection | debug | Server selection succeeded |
//! | `ServerSelectionFailed` | server selection | debug | Server selection failed |

use sdam_core::event::{Event, EventName};

mod config;
mod content;
mod fields;
#[cfg(test)]
pub(crate) mod tests;
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
    /// Returns the message for `event`, if it has one; truncates documents to `max_document_length`
    /// characters.
    pub fn of(event: &'e Event, max_document_length: usize) -> Option<Self> {
        let name = event.kind.name();
        Some(Self { name, text: text(name)?, fields: LogFields::of(event, max_document_length) })
    }

    /// Returns the fixed message, which is the same for all events with the same name.
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
        EventName::SrvHostsIgnored => "SRV hosts ignored",
        EventName::SrvLookupFailed => "SRV look-up failed",
        EventName::ServerUnusable => "Server unusable",
        EventName::ServerSuspected => "Server suspected",
        EventName::ServerSuspicionEnded => "Server suspicion ended",
        EventName::EventsDropped => "Events dropped",
        EventName::ServerHeartbeatStarted => "Server heartbeat started",
        EventName::ServerHeartbeatSucceeded => "Server heartbeat succeeded",
        EventName::ServerHeartbeatFailed => "Server heartbeat failed",
        EventName::PoolCreated => "Connection pool created",
        EventName::PoolReady => "Connection pool ready",
        EventName::PoolCleared => "Connection pool cleared",
        EventName::PoolClosed => "Connection pool closed",
        EventName::ConnectionCreated => "Connection created",
        EventName::ConnectionReady => "Connection ready",
        EventName::ConnectionClosed => "Connection closed",
        EventName::ConnectionCheckOutStarted => "Connection checkout started",
        EventName::ConnectionCheckOutFailed => "Connection checkout failed",
        EventName::ConnectionCheckedOut => "Connection checked out",
        EventName::ConnectionCheckedIn => "Connection checked in",
        EventName::CommandStarted => "Command started",
        EventName::CommandSucceeded => "Command succeeded",
        EventName::CommandFailed => "Command failed",
        EventName::ServerSelectionStarted => "Server selection started",
        EventName::ServerSelectionWaiting => "Waiting for suitable server to become available",
        EventName::ServerSelectionSucceeded => "Server selection succeeded",
        EventName::ServerSelectionFailed => "Server selection failed",
        _ => return None,
    })
}
