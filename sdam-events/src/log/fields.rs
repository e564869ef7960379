use std::fmt::{self, Display};

use sdam_core::{
    address::ServerAddress,
    document::ExtendedJson,
    error::Error,
    ids::ObjectId,
    options::Warning,
    topology::{DepartureReason, Obstacle, TopologyDescription},
};

/// The named values of a log message; absent values are omitted, never null.
///
/// The names in the log are the specification's: see [`Self::for_each`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogFields<'e> {
    /// `topologyId`
    pub topology_id: Option<ObjectId>,
    /// `serverHost`, without brackets if it is an IPv6 literal, or the path of a socket.
    pub server_host: Option<&'e str>,
    /// `serverPort`, absent for Unix domain sockets.
    pub server_port: Option<u16>,
    /// `driverConnectionId`
    pub driver_connection_id: Option<u64>,
    /// `serverConnectionId`, absent until the server has reported it.
    pub server_connection_id: Option<i64>,
    /// `serviceId`
    pub service_id: Option<ObjectId>,
    /// `awaited`
    pub awaited: Option<bool>,
    /// `durationMS`
    pub duration_ms: Option<f64>,
    /// `reply`
    pub reply: Option<ExtendedJson<'e>>,
    /// `failure`
    pub failure: Option<Failure<'e>>,
    /// `error`: the error of the connection, if it is the reason.
    pub error: Option<Failure<'e>>,
    /// `command`: the document.
    pub command: Option<ExtendedJson<'e>>,
    /// `commandName`
    pub command_name: Option<&'e str>,
    /// `databaseName`
    pub database_name: Option<&'e str>,
    /// `requestId`
    pub request_id: Option<i32>,
    /// `maxIdleTimeMS`. Absent if it is the default, like the following options.
    pub max_idle_time_ms: Option<i64>,
    /// `minPoolSize`
    pub min_pool_size: Option<u32>,
    /// `maxPoolSize`
    pub max_pool_size: Option<u32>,
    /// `maxConnecting`
    pub max_connecting: Option<u32>,
    /// `waitQueueTimeoutMS`
    pub wait_queue_timeout_ms: Option<i64>,
    /// `previousDescription`
    pub previous_description: Option<&'e TopologyDescription>,
    /// `newDescription`
    pub new_description: Option<&'e TopologyDescription>,
    /// `selector`
    pub selector: Option<&'e str>,
    /// `operation`
    pub operation: Option<&'e str>,
    /// `operationId`
    pub operation_id: Option<i64>,
    /// `topologyDescription`
    pub topology_description: Option<&'e TopologyDescription>,
    /// `remainingTimeMS`: the time left for a selection, absent if there is no timeout; or the time
    /// until the next look-up.
    pub remaining_time_ms: Option<i64>,
    /// `warning`: the problem with an option and its consequence.
    pub warning: Option<&'e Warning>,
    /// `ignored`: the number of members that did not join.
    pub ignored: Option<usize>,
    /// `limit`: the maximum number of servers.
    pub limit: Option<usize>,
    /// `srvName`: the name whose SRV records are looked up.
    pub srv_name: Option<&'e str>,
    /// `domain`: the domain to which the hosts of the SRV record must belong.
    pub domain: Option<&'e str>,
    /// `hosts`: the hosts of the SRV record that were ignored.
    pub hosts: Option<HostList<'e>>,
    /// `dropped`: the number of events dropped so far because the sink is too slow.
    pub dropped: Option<u64>,
    /// `reason`: the reason why the server was removed or cannot be used, the connection was
    /// closed, or the check-out failed.
    pub reason: Option<Reason<'e>>,
}

/// Addresses, separated by commas.
#[derive(Clone, Copy, Debug)]
pub struct HostList<'e>(pub &'e [ServerAddress]);

impl Display for HostList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{host}")?;
        }
        Ok(())
    }
}

/// The text of an error.
#[derive(Clone, Copy, Debug)]
pub enum Failure<'e> {
    /// The error of a check, a connection or a command.
    Error(&'e Error),
    /// The text of a failed selection or check-out.
    Text(&'e str),
}

impl Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error:#}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The reason why a server was removed or cannot be used, a connection was closed, or a check-out
/// failed.
#[derive(Clone, Copy, Debug)]
pub enum Reason<'e> {
    /// The reason why a server was removed.
    Departure(&'e DepartureReason),
    /// The reason why a server cannot be used; the text includes the remedy.
    Obstacle(&'e Obstacle),
    /// The specification's sentence.
    Text(&'static str),
}

impl Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Departure(reason) => reason.fmt(f),
            Self::Obstacle(obstacle) => write!(f, "{obstacle}; {}", obstacle.remedy()),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The value of a field of a log message.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A text.
    Text(&'a dyn Display),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// A boolean.
    Bool(bool),
}

impl LogFields<'_> {
    /// Calls `visit` with the specification's name and the value of each field that is present.
    pub fn for_each(&self, mut visit: impl FnMut(&'static str, Value<'_>)) {
        let unsigned = |number: Option<u32>| number.map(|number| Value::Integer(number.into()));
        let fields: [(&'static str, Option<Value<'_>>); 35] = [
            ("topologyId", text(self.topology_id.as_ref())),
            ("serverHost", text(self.server_host.as_ref())),
            ("serverPort", self.server_port.map(|port| Value::Integer(port.into()))),
            ("driverConnectionId", self.driver_connection_id.map(|id| Value::Integer(id as i64))),
            ("serverConnectionId", self.server_connection_id.map(Value::Integer)),
            ("serviceId", text(self.service_id.as_ref())),
            ("awaited", self.awaited.map(Value::Bool)),
            ("durationMS", self.duration_ms.map(Value::Number)),
            ("reply", text(self.reply.as_ref())),
            ("failure", text(self.failure.as_ref())),
            ("error", text(self.error.as_ref())),
            ("command", text(self.command.as_ref())),
            ("commandName", text(self.command_name.as_ref())),
            ("databaseName", text(self.database_name.as_ref())),
            ("requestId", self.request_id.map(|id| Value::Integer(id.into()))),
            ("maxIdleTimeMS", self.max_idle_time_ms.map(Value::Integer)),
            ("minPoolSize", unsigned(self.min_pool_size)),
            ("maxPoolSize", unsigned(self.max_pool_size)),
            ("maxConnecting", unsigned(self.max_connecting)),
            ("waitQueueTimeoutMS", self.wait_queue_timeout_ms.map(Value::Integer)),
            ("previousDescription", text(self.previous_description.as_ref())),
            ("newDescription", text(self.new_description.as_ref())),
            ("selector", text(self.selector.as_ref())),
            ("operation", text(self.operation.as_ref())),
            ("operationId", self.operation_id.map(Value::Integer)),
            ("topologyDescription", text(self.topology_description.as_ref())),
            ("remainingTimeMS", self.remaining_time_ms.map(Value::Integer)),
            ("warning", text(self.warning.as_ref())),
            ("ignored", self.ignored.map(|count| Value::Integer(count as i64))),
            ("limit", self.limit.map(|count| Value::Integer(count as i64))),
            ("srvName", text(self.srv_name.as_ref())),
            ("domain", text(self.domain.as_ref())),
            ("hosts", text(self.hosts.as_ref())),
            ("dropped", self.dropped.map(|count| Value::Integer(count as i64))),
            ("reason", text(self.reason.as_ref())),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                visit(name, value);
            }
        }
    }
}

fn text<T: Display>(value: Option<&T>) -> Option<Value<'_>> {
    value.map(|value| Value::Text(value))
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{:?}", text.to_string()),
            other => Display::fmt(other, f),
        }
    }
}
