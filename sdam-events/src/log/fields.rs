use std::fmt::{self, Display};

use sdam_core::{
    Joined, address::ServerAddress, document::ExtendedJson, error::Error, topology::Obstacle,
};

/// The named values of a log message; absent values are omitted, never null.
///
/// The names are those of the specification:
///
/// | name | value |
/// | --- | --- |
/// | `topologyId`, `serviceId` | ids in hexadecimal digits |
/// | `serverHost` | the host, without brackets if it is an IPv6 literal; or the path of a Unix domain socket |
/// | `serverPort` | absent for Unix domain sockets |
/// | `driverConnectionId` | the number that the client has assigned to the connection |
/// | `serverConnectionId` | the number that the server has assigned to the connection; absent until reported |
/// | `awaited` | whether the server may delay its reply until something changes |
/// | `durationMS` | with a precision of microseconds |
/// | `failure` | the error of a check or a command, or the text of a failed selection |
/// | `error` | the error of the connection, if an error is the reason |
/// | `reply`, `command` | documents, truncated |
/// | `commandName`, `databaseName`, `requestId` | the command's name, database and request id |
/// | `maxIdleTimeMS`, `minPoolSize`, `maxPoolSize`, `maxConnecting`, `waitQueueTimeoutMS` | options that are not the default |
/// | `previousDescription`, `newDescription`, `topologyDescription` | descriptions of the topology |
/// | `selector`, `operation`, `operationId` | the criteria of the selection, and the operation that it is for |
/// | `remainingTimeMS` | the time left for a selection, absent if there is no timeout; or the time until the next look-up |
/// | `warning` | the problem with an option and its consequence |
/// | `ignored`, `limit` | the number of members that did not join, and the maximum number of servers |
/// | `srvName`, `domain`, `hosts` | an SRV record, the domain to which its hosts must belong, and the hosts that were ignored |
/// | `dropped` | the number of events dropped so far because the sink is too slow |
/// | `reason` | the reason why the server was removed or cannot be used, the connection was closed, or the check-out failed |
#[derive(Clone, Debug, Default)]
pub struct LogFields<'e>(Vec<(&'static str, Value<'e>)>);

impl<'e> LogFields<'e> {
    /// Returns the value with this name.
    pub fn get(&self, name: &str) -> Option<Value<'e>> {
        self.iter().find_map(|(own, value)| (own == name).then_some(value))
    }

    /// Returns the name and the value of each field that is present.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static str, Value<'e>)> {
        self.0.iter().copied()
    }

    pub(super) fn with(self, name: &'static str, value: impl Into<Value<'e>>) -> Self {
        self.with_some(name, Some(value))
    }

    pub(super) fn with_some(
        mut self,
        name: &'static str,
        value: Option<impl Into<Value<'e>>>,
    ) -> Self {
        self.0.extend(value.map(|value| (name, value.into())));
        self
    }
}

/// The value of a field of a log message.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Value<'e> {
    /// A string.
    Text(&'e str),
    /// An id, a topology, a warning or a reason, formatted as a string.
    Shown(&'e (dyn Display + Sync)),
    /// A document.
    Document(ExtendedJson<'e>),
    /// An error, with its causes.
    Error(&'e Error),
    /// The reason why a server cannot be used, and the remedy.
    Obstacle(&'e Obstacle),
    /// Addresses, separated by commas.
    Hosts(&'e [ServerAddress]),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// A boolean.
    Bool(bool),
}

macro_rules! from {
    ($($type:ty: $variant:ident;)*) => {$(
        impl<'e> From<$type> for Value<'e> {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

from! {
    &'e str: Text;
    &'e Error: Error;
    bool: Bool;
    i32: Integer;
    i64: Integer;
    u16: Integer;
    u32: Integer;
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Shown(value) => value.fmt(f),
            Self::Document(document) => document.fmt(f),
            Self::Error(error) => write!(f, "{error:#}"),
            Self::Obstacle(obstacle) => write!(f, "{obstacle}; {}", obstacle.remedy()),
            Self::Hosts(hosts) => Joined(*hosts, ", ").fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(_) | Self::Number(_) | Self::Bool(_) => Display::fmt(self, f),
            text => write!(f, "{:?}", text.to_string()),
        }
    }
}
