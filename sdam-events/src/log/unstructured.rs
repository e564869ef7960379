use std::fmt::{self, Display};

use super::{EventName, LogMessage};

impl Display for LogMessage<'_> {
    /// Writes the specification's unstructured sentence, without the parts for absent values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = template(self.name).split(['[', ']']);
        parts.try_for_each(|part| f.write_str(&self.fill(part).unwrap_or_default()))
    }
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

impl LogMessage<'_> {
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
