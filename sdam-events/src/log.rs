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

use std::fmt::{self, Display};

use sdam_core::event::{Event, EventName};

mod config;
mod fields;
#[cfg(test)]
pub(crate) mod tests;

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

    /// Substitutes values for the names in a part of a template. Returns `None` if a value is
    /// absent.
    fn fill(&self, part: &str) -> Option<String> {
        let mut filled = String::new();
        for (index, piece) in part.split(['{', '}']).enumerate() {
            let is_name = index % 2 == 1;
            filled.push_str(&if is_name { self.value(piece)? } else { piece.to_owned() });
        }
        Some(filled)
    }

    fn value(&self, name: &str) -> Option<String> {
        let field = |name| self.fields.get(name).map(|value| value.to_string());
        match name {
            "text" => Some(self.text.to_owned()),
            "end" => self.text.rsplit(' ').next().map(str::to_owned),
            "options" => {
                let all = [
                    "maxIdleTimeMS",
                    "minPoolSize",
                    "maxPoolSize",
                    "maxConnecting",
                    "waitQueueTimeoutMS",
                ];
                let given = all.iter().filter_map(|name| Some(format!("{name}={}", field(name)?)));
                Some(given.collect::<Vec<_>>().join(", ")).filter(|given| !given.is_empty())
            }
            "server" => {
                let host = field("serverHost")?;
                Some(match field("serverPort") {
                    Some(port) if host.contains(':') => format!("[{host}]:{port}"),
                    Some(port) => format!("{host}:{port}"),
                    None => host,
                })
            }
            name => field(name),
        }
    }
}

impl Display for LogMessage<'_> {
    /// Writes the specification's unstructured sentence, without the parts for absent values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = template(self.name).split(['[', ']']);
        parts.try_for_each(|part| f.write_str(&self.fill(part).unwrap_or_default()))
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

/// Returns the sentence for events of this name, with the names of fields in braces. A part in
/// brackets is omitted if its field is absent.
///
/// Besides fields, braces may contain `text` (the fixed message), `end` (its last word), `server`
/// (the address of the server) and `options` (those of the pool).
const fn template(name: EventName) -> &'static str {
    match name {
        EventName::TopologyOpening => "Starting monitoring for topology with ID {topologyId}",
        EventName::TopologyClosed => "Stopped monitoring for topology with ID {topologyId}",
        EventName::ServerOpening => {
            "Starting monitoring for server {server} in topology with ID {topologyId}"
        }
        EventName::ServerClosed => {
            "Stopped monitoring for server {server} in topology with ID {topologyId}. Reason: it \
             {reason}"
        }
        EventName::TopologyDescriptionChanged => {
            "Description changed for topology with ID {topologyId}. Previous description: \
             {previousDescription}. New description: {newDescription}"
        }
        EventName::ConfigWarning => "Configuration of topology with ID {topologyId}: {warning}",
        EventName::MembersIgnored => {
            "Ignored {ignored} members beyond the limit of {limit} servers in topology with ID \
             {topologyId}"
        }
        EventName::TopologyEmptied => {
            "The last server has left topology with ID {topologyId}, so no server will be found \
             any more; check the hosts and the replica set name that are configured"
        }
        EventName::SrvHostsIgnored => {
            "Ignored hosts of SRV record {srvName}, because they are not in the domain {domain}, \
             in topology with ID {topologyId}: {hosts}"
        }
        EventName::SrvLookupFailed => {
            "SRV record {srvName} gave no hosts, so topology with ID {topologyId} keeps its own \
             and looks up again in {remainingTimeMS} ms: {failure}"
        }
        EventName::ServerUnusable => {
            "Cannot use server {server} in topology with ID {topologyId}: {reason}"
        }
        EventName::ServerSuspected => {
            "Server {server} has not answered for {durationMS} ms while others do, in topology \
             with ID {topologyId}"
        }
        EventName::ServerSuspicionEnded => {
            "Server {server} is no longer suspected after {durationMS} ms, in topology with ID \
             {topologyId}: {reason}"
        }
        EventName::EventsDropped => {
            "Left out {dropped} events so far, which come faster than they are taken, in topology \
             with ID {topologyId}"
        }
        EventName::ServerHeartbeatStarted
        | EventName::ServerHeartbeatSucceeded
        | EventName::ServerHeartbeatFailed => {
            "Heartbeat {end}[ in {durationMS} ms] for {server} on connection with driver-generated \
             ID {driverConnectionId}[ and server-generated ID {serverConnectionId}] in topology \
             with ID {topologyId}. Awaited: {awaited}[. Reply: {reply}][. Failure: {failure}]"
        }
        name => operation_template(name),
    }
}

/// Returns the sentence for events of pools, commands and selections.
const fn operation_template(name: EventName) -> &'static str {
    match name {
        EventName::PoolCreated => "{text} for {server}[ using options {options}]",
        EventName::PoolReady | EventName::PoolClosed => "{text} for {server}",
        EventName::PoolCleared => {
            "Connection pool for {server} cleared[ for serviceId {serviceId}]"
        }
        EventName::ConnectionReady => {
            "{text}: address={server}, driver-generated ID={driverConnectionId}, established \
             in={durationMS} ms"
        }
        EventName::ConnectionCheckOutStarted => "Checkout started for connection to {server}",
        EventName::ConnectionCheckOutFailed => {
            "Checkout failed for connection to {server}[. Reason: {reason}][. Error: {error}]\
             [. Duration: {durationMS} ms]"
        }
        EventName::CommandStarted | EventName::CommandSucceeded | EventName::CommandFailed => {
            "Command \"{commandName}\" {end} on database \"{databaseName}\"[ in {durationMS} ms]\
             [ using a connection with driver-generated ID {driverConnectionId}]\
             [ and server-generated ID {serverConnectionId}] to {server}\
             [ with service ID {serviceId}][. The requestID is {requestId}]\
             [ and the operation ID is {operationId}][. Command: {command}]\
             [. Command reply: {reply}][. Error: {failure}]"
        }
        // The specification ends only this sentence with a full stop.
        EventName::ServerSelectionWaiting => {
            "Waiting for server to become available[ for operation {operation}]\
             [ with ID {operationId}]. [Remaining time: {remainingTimeMS} ms. ]Selector: \
             {selector}, topology description: {topologyDescription}."
        }
        EventName::ServerSelectionStarted
        | EventName::ServerSelectionSucceeded
        | EventName::ServerSelectionFailed => {
            "{text}[ for operation {operation}][ with ID {operationId}]. \
             [Selected server: {server}. ][Failure: {failure}. ]Selector: {selector}, topology \
             description: {topologyDescription}"
        }
        _ => {
            "{text}: address={server}, driver-generated ID={driverConnectionId}\
             [, duration={durationMS} ms][. Reason: {reason}][. Error: {error}]"
        }
    }
}
