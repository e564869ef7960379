use std::str::FromStr;

use super::EventName;
use crate::sink::Interest;

/// Documents are cut after so many characters unless configured otherwise.
pub const DEFAULT_MAX_DOCUMENT_LENGTH: usize = 1000;

/// The part of a driver that a log message comes from (Logging: "Components").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Component {
    /// Discovery and monitoring.
    Topology,
    /// The choice of a server for an operation.
    ServerSelection,
    /// Connections and their pools.
    Connection,
    /// Commands; nothing in these crates logs them, but they are configured in the same place.
    Command,
}

impl Component {
    /// The component that speaks of events of this name.
    pub(super) fn of(name: EventName) -> Self {
        if Interest::SELECTION.contains(name) {
            Self::ServerSelection
        } else if Interest::POOLS.contains(name) {
            Self::Connection
        } else {
            Self::Topology
        }
    }

    /// The specification's name, such as `serverSelection`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Topology => "topology",
            Self::ServerSelection => "serverSelection",
            Self::Connection => "connection",
            Self::Command => "command",
        }
    }
}

/// How important a log message is (Logging: "Log Severity Levels"); what is more important is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As a limit: no message at all.
    #[default]
    Off,
    /// Unusable.
    Emergency,
    /// Act at once.
    Alert,
    /// Critical.
    Critical,
    /// Something has failed for the user.
    Error,
    /// Something will fail for the user.
    Warn,
    /// Unusual, not wrong.
    Notice,
    /// Worth knowing.
    Info,
    /// What a user needs to find a fault.
    Debug,
    /// What a developer of this crate needs to find a fault.
    Trace,
}

impl Severity {
    /// The severity of the message about events of this name.
    pub(super) fn of(name: EventName) -> Self {
        match name {
            EventName::ServerSelectionWaiting => Self::Info,
            EventName::ConfigWarning
            | EventName::EventsDropped
            | EventName::MembersIgnored
            | EventName::TopologyEmptied => Self::Warn,
            _ => Self::Debug,
        }
    }
}

impl FromStr for Severity {
    type Err = ();

    /// Reads a level as in MONGODB_LOG_ALL, in any case.
    fn from_str(text: &str) -> Result<Self, ()> {
        const NAMES: [(&str, Severity); 10] = [
            ("off", Severity::Off),
            ("emergency", Severity::Emergency),
            ("alert", Severity::Alert),
            ("critical", Severity::Critical),
            ("error", Severity::Error),
            ("warn", Severity::Warn),
            ("notice", Severity::Notice),
            ("info", Severity::Info),
            ("debug", Severity::Debug),
            ("trace", Severity::Trace),
        ];
        NAMES
            .into_iter()
            .find_map(|(name, severity)| name.eq_ignore_ascii_case(text).then_some(severity))
            .ok_or(())
    }
}

/// Where log messages go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogOutput {
    /// To standard error.
    #[default]
    Stderr,
    /// To standard output.
    Stdout,
    /// To the end of the file with this path.
    File(Box<str>),
}

/// What is logged. By default nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogConfig {
    /// The least important messages that are logged about discovery and monitoring.
    pub topology: Severity,
    /// The least important messages that are logged about the choice of servers.
    pub server_selection: Severity,
    /// The least important messages that are logged about connections.
    pub connection: Severity,
    /// The least important messages that are logged about commands.
    pub command: Severity,
    /// Where the messages go; a matter of whoever sets up the logger.
    pub output: LogOutput,
    /// Documents are cut after so many characters.
    pub max_document_length: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self::all(Severity::Off)
    }
}

impl LogConfig {
    /// Everything from `severity` up, to standard error.
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

    /// What the environment variables say (Logging: "Configuration"); `lookup` yields their values.
    ///
    /// | variable | value |
    /// | --- | --- |
    /// | `MONGODB_LOG_TOPOLOGY`, `_SERVER_SELECTION`, `_CONNECTION`, `_COMMAND` | the least important [`Severity`] that is logged |
    /// | `MONGODB_LOG_ALL` | the same for the components that have no variable of their own |
    /// | `MONGODB_LOG_PATH` | `stderr` (default), `stdout` or the path of a file |
    /// | `MONGODB_LOG_MAX_DOCUMENT_LENGTH` | characters, 1000 by default |
    ///
    /// A value that is no value counts as none.
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
                Some(path) if path.is_empty() || path.eq_ignore_ascii_case("stderr") => {
                    LogOutput::Stderr
                }
                Some(path) => LogOutput::File(path.into()),
                None => LogOutput::Stderr,
            },
            max_document_length: lookup("MONGODB_LOG_MAX_DOCUMENT_LENGTH")
                .and_then(|length| length.trim().parse().ok())
                .unwrap_or(DEFAULT_MAX_DOCUMENT_LENGTH),
        }
    }

    /// The least important messages of `component` that are logged.
    pub const fn severity(&self, component: Component) -> Severity {
        match component {
            Component::Topology => self.topology,
            Component::ServerSelection => self.server_selection,
            Component::Connection => self.connection,
            Component::Command => self.command,
        }
    }

    /// Whether messages of this severity of `component` are logged.
    pub fn enables(&self, component: Component, severity: Severity) -> bool {
        severity != Severity::Off && severity <= self.severity(component)
    }

    /// The events that a sink needs to be told of to log what is configured.
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
