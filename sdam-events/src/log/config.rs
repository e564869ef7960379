use std::str::FromStr;

use super::EventName;
use crate::sink::Interest;

/// The default of [`LogConfig::max_document_length`], in characters.
pub const DEFAULT_MAX_DOCUMENT_LENGTH: usize = 1000;

/// The part of a driver that emits a log message (Logging: "Components").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "camelCase")]
pub enum Component {
    /// Discovery and monitoring.
    Topology,
    /// Server selection.
    ServerSelection,
    /// Connections and connection pools.
    Connection,
    /// Commands.
    Command,
}

impl Component {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Component {
    /// Returns the component that logs the events called `name`.
    pub(super) fn of(name: EventName) -> Self {
        if Interest::SELECTION.contains(name) {
            Self::ServerSelection
        } else if Interest::POOLS.contains(name) {
            Self::Connection
        } else if Interest::COMMANDS.contains(name) {
            Self::Command
        } else {
            Self::Topology
        }
    }
}

/// The severity of a log message (Logging: "Log Severity Levels"). More severe values compare
/// as smaller.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// A limit that disables all messages.
    #[default]
    Off,
    /// The system is unusable.
    Emergency,
    /// Immediate action is required.
    Alert,
    /// A critical condition.
    Critical,
    /// An error that the user has to handle.
    Error,
    /// A condition that may become an error for the user.
    Warn,
    /// An unusual condition that is not an error.
    Notice,
    /// A normal event.
    Info,
    /// Details that help a user find a problem.
    Debug,
    /// Details that help a developer of this crate find a problem.
    Trace,
}

impl Severity {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Severity {
    /// Returns the severity of messages for the events called `name`.
    pub(super) fn of(name: EventName) -> Self {
        match name {
            EventName::ServerSelectionWaiting | EventName::ServerSuspicionEnded => Self::Info,
            EventName::ConfigWarning
            | EventName::EventsDropped
            | EventName::MembersIgnored
            | EventName::SrvHostsIgnored
            | EventName::SrvLookupFailed
            | EventName::ServerSuspected
            | EventName::ServerUnusable
            | EventName::TopologyEmptied => Self::Warn,
            _ => Self::Debug,
        }
    }
}

impl FromStr for Severity {
    type Err = ();

    /// Parses a level as used in `MONGODB_LOG_ALL`, ignoring case.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.iter().copied();
        all.find(|severity| severity.as_str().eq_ignore_ascii_case(text)).ok_or(())
    }
}

/// The destination of log messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogOutput {
    /// Standard error.
    #[default]
    Stderr,
    /// Standard output.
    Stdout,
    /// Appends to the file with this path.
    File(Box<str>),
}

/// The configuration of logging. Nothing is logged by default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogConfig {
    /// The minimum severity to log for discovery and monitoring.
    pub topology: Severity,
    /// The minimum severity to log for server selection.
    pub server_selection: Severity,
    /// The minimum severity to log for connections.
    pub connection: Severity,
    /// The minimum severity to log for commands.
    pub command: Severity,
    /// The destination of messages, to be read by the code that sets up the logger.
    pub output: LogOutput,
    /// The length at which documents are truncated, in characters.
    pub max_document_length: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self::all(Severity::Off)
    }
}

impl LogConfig {
    /// Returns a configuration that logs messages of at least the given severity to standard error.
    pub const fn all(severity: Severity) -> Self {
        Self {
            topology: severity,
            server_selection: severity,
            connection: severity,
            command: severity,
            output: LogOutput::Stderr,
            max_document_length: DEFAULT_MAX_DOCUMENT_LENGTH,
        }
    }

    /// Reads the configuration from environment variables (Logging: "Configuration"); `lookup`
    /// returns their values.
    ///
    /// | variable | value |
    /// | --- | --- |
    /// | `MONGODB_LOG_TOPOLOGY`, `_SERVER_SELECTION`, `_CONNECTION`, `_COMMAND` | the minimum [`Severity`] to log |
    /// | `MONGODB_LOG_ALL` | the same, for components whose own variable is not set |
    /// | `MONGODB_LOG_PATH` | `stderr` (default), `stdout` or the path of a file |
    /// | `MONGODB_LOG_MAX_DOCUMENT_LENGTH` | the length at which documents are truncated, in characters; 1000 by default |
    ///
    /// An invalid value counts as unset.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let severity = |name: &str| lookup(name)?.trim().parse::<Severity>().ok();
        let all = severity("MONGODB_LOG_ALL").unwrap_or_default();
        let of = |name: &str| severity(name).unwrap_or(all);
        Self {
            topology: of("MONGODB_LOG_TOPOLOGY"),
            server_selection: of("MONGODB_LOG_SERVER_SELECTION"),
            connection: of("MONGODB_LOG_CONNECTION"),
            command: of("MONGODB_LOG_COMMAND"),
            output: match lookup("MONGODB_LOG_PATH") {
                Some(path) if path.eq_ignore_ascii_case("stdout") => LogOutput::Stdout,
                Some(path) if !path.is_empty() && !path.eq_ignore_ascii_case("stderr") => {
                    LogOutput::File(path.into())
                }
                _ => LogOutput::Stderr,
            },
            max_document_length: lookup("MONGODB_LOG_MAX_DOCUMENT_LENGTH")
                .and_then(|length| length.trim().parse().ok())
                .unwrap_or(DEFAULT_MAX_DOCUMENT_LENGTH),
        }
    }

    /// Returns the minimum severity to log for `component`.
    pub(crate) const fn severity(&self, component: Component) -> Severity {
        match component {
            Component::Topology => self.topology,
            Component::ServerSelection => self.server_selection,
            Component::Connection => self.connection,
            Component::Command => self.command,
        }
    }

    /// Returns whether messages of this component and severity are logged.
    pub fn enables(&self, component: Component, severity: Severity) -> bool {
        severity != Severity::Off && severity <= self.severity(component)
    }

    /// Returns the events that a sink needs to log the configured messages.
    pub fn interest(&self) -> Interest {
        EventName::ALL
            .iter()
            .copied()
            .filter(|name| {
                super::text(*name).is_some()
                    && self.enables(Component::of(*name), Severity::of(*name))
            })
            .collect()
    }
}
