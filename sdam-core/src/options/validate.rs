//! Validates options, whether they come from a connection string or from code. Errors and warnings
//! are plain data.

use alloc::{boxed::Box, collections::BTreeSet, format, string::ToString, vec::Vec};
use core::{fmt, time::Duration};

use super::{Options, ServerMonitoringMode, TlsOptions};
use crate::topology::TopologyType;

/// The maximum length of `appName` in bytes (MongoDB Handshake: "client.application.name").
const MAX_APP_NAME_LEN: usize = 128;

type Outcome = Result<(), ConfigError>;

/// The error for an unusable configuration.
///
/// It never contains passwords, or text that might be part of one. `Debug` prints the same text as
/// `Display`, for programs that return it from `main`.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(Box<Parts>);

impl ConfigError {
    /// Creates an error stating that `option` cannot have this `value`, with the `reason` and a
    /// `remedy`.
    ///
    /// `value` may be empty if the problem is a missing value.
    pub fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) -> Self {
        Self(Box::new(Parts {
            option: option.into(),
            value: value.into(),
            reason: reason.into(),
            outcome: remedy.into(),
        }))
    }

    /// Returns the name of the option as it is spelled in connection strings, the invalid part of
    /// the string, or `runtime`.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// Returns the value as it was given, or an empty string if no value can be shown.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Returns a description of the problem with the value.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the suggested remedy.
    pub fn remedy(&self) -> &str {
        &self.0.outcome
    }
}

impl core::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A warning about a part of the configuration that is invalid or has no effect, although the
/// configuration as a whole can be used.
///
/// The core does not log: the engine publishes each warning as an
/// [event](crate::event::EventKind::ConfigWarning) when a topology opens.
#[derive(Clone, PartialEq, Eq)]
pub struct Warning(Box<Parts>);

impl Warning {
    /// Creates a warning stating that `option` should not have this `value`, with the `reason` and
    /// the `consequence`.
    pub fn new(
        option: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
        reason: impl Into<Box<str>>,
        consequence: impl Into<Box<str>>,
    ) -> Self {
        let ConfigError(parts) = ConfigError::new(option, value, reason, consequence);
        Self(parts)
    }

    /// Returns the name of the option as it is spelled in connection strings.
    pub fn option(&self) -> &str {
        &self.0.option
    }

    /// Returns the value as it was given, or an empty string if no value can be shown.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Returns a description of the problem with the value.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the consequence, for instance that the option is ignored.
    pub fn consequence(&self) -> &str {
        &self.0.outcome
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Options {
    /// Checks the options as a whole. This method is also called when a topology is started.
    ///
    /// # Errors
    ///
    /// Returns the first problem found: an option that is invalid or contradicts another one. An
    /// invalid option that [protects](crate::uri#options-that-protect-connections) connections is
    /// reported first.
    pub fn validate(&self) -> Outcome {
        if let Some(error) = &self.uri_unguarded {
            return Err(error.clone());
        }
        self.check_values()?;
        self.check_topology_type()?;
        self.check_seeds()?;
        self.check_load_balanced()?;
        self.check_srv()?;
        self.pool.validate()?;
        self.read_preference.validate()
    }

    /// Returns the warnings for a client with background monitors, about ignored parts of the
    /// connection string and about options that have no effect.
    pub fn multi_threaded_warnings(&self) -> Vec<Warning> {
        let mut warnings = self.common_warnings();
        if let Some(try_once) = self.server_selection_try_once {
            let shown = try_once.to_string();
            let reason = "only single-threaded clients have it";
            let consequence = "the option is ignored";
            warnings.push(Warning::new("serverSelectionTryOnce", shown, reason, consequence));
        }
        warnings
    }

    /// Returns the same kinds of warnings as
    /// [`multi_threaded_warnings`](Self::multi_threaded_warnings), but for a single-threaded
    /// client.
    pub fn single_threaded_warnings(&self) -> Vec<Warning> {
        let mut warnings = self.common_warnings();
        if self.server_monitoring_mode != ServerMonitoringMode::Auto {
            let shown = self.server_monitoring_mode.as_str();
            let reason = "only clients with background monitors have it";
            let consequence = "the option is ignored";
            warnings.push(Warning::new("serverMonitoringMode", shown, reason, consequence));
        }
        if let Some(detector) = self.detector {
            let reason = "only clients with background monitors have one";
            let consequence = "the option is ignored";
            warnings.push(Warning::new("detector", format!("{detector:?}"), reason, consequence));
        }
        warnings
    }

    /// Adds a warning that is published with the others when a topology opens, for instance about
    /// an option that a driver does not support.
    pub fn warn(&mut self, warning: Warning) {
        self.uri_warnings.push(warning);
    }

    fn common_warnings(&self) -> Vec<Warning> {
        let mut warnings = self.uri_warnings.clone();
        if self.seeds.is_empty() {
            let reason = "there are none";
            let consequence = "no server will ever be found";
            warnings.push(Warning::new("seeds", "", reason, consequence));
        }
        let mut seen = BTreeSet::new();
        let again = self.seeds.iter().filter(|seed| !seen.insert(*seed));
        warnings.extend(again.map(|seed| {
            let (reason, consequence) = ("it is named more than once", "it counts once");
            Warning::new("seeds", seed.as_str(), reason, consequence)
        }));
        warnings.extend(self.tls.iter().flat_map(TlsOptions::warnings));
        warnings
    }

    fn check_times(&self) -> Outcome {
        let min = self.deviations.min_heartbeat_frequency.as_millis();
        if min == 0 {
            let reason = "waiting selections would check servers without a pause";
            let remedy = "allow at least 1 ms";
            return Err(ConfigError::new("minHeartbeatFrequencyMS", "0", reason, remedy));
        }
        if self.connect_timeout.is_some_and(|limit| limit.is_zero()) {
            let reason = "every attempt to connect would time out at once";
            let remedy = "set `None` for no limit";
            return Err(ConfigError::new("connectTimeoutMS", "0", reason, remedy));
        }
        if let Some(limit) = self.tcp_user_timeout
            && limit < Duration::from_millis(1)
        {
            let reason = "the system counts milliseconds, and takes 0 for its own limit";
            let remedy = "set at least 1 ms, or `None` for the system's limit";
            return Err(ConfigError::new("tcpUserTimeout", format!("{limit:?}"), reason, remedy));
        }
        if let Some(detector) = self.detector
            && detector.floor < Duration::from_millis(1)
        {
            let reason = "each pause of a server would end it";
            let remedy = "set a floor of at least 1 ms";
            return Err(ConfigError::new("detector", format!("{detector:?}"), reason, remedy));
        }
        match self.heartbeat_frequency {
            Some(frequency) if frequency < self.deviations.min_heartbeat_frequency => {
                let shown = frequency.as_millis().to_string();
                let reason = "servers must not be checked that often";
                let remedy = format!("allow at least {min} ms");
                Err(ConfigError::new("heartbeatFrequencyMS", shown, reason, remedy))
            }
            _ => Ok(()),
        }
    }

    fn check_values(&self) -> Outcome {
        self.check_times()?;
        if let (Some(uri), Some(code)) = (self.uri_try_once, self.server_selection_try_once)
            && uri != code
        {
            let shown = code.to_string();
            let reason = format!("the connection string says `{uri}`");
            let remedy = "set it in one place";
            return Err(ConfigError::new("serverSelectionTryOnce", shown, reason, remedy));
        }
        if let Some(name) = &self.app_name
            && name.len() > MAX_APP_NAME_LEN
        {
            let reason = format!("servers refuse a name of {} bytes", name.len());
            let remedy = "take at most 128 bytes of UTF-8";
            return Err(ConfigError::new("appname", &**name, reason, remedy));
        }
        if self.replica_set.as_deref() == Some("") {
            let reason = "no replica set has an empty name";
            let remedy = "name the set, or set no name";
            return Err(ConfigError::new("replicaSet", "", reason, remedy));
        }
        if let Some(api) = &self.server_api
            && &*api.version != "1"
        {
            let reason = "there is no such version of the stable API";
            let remedy = "declare version 1, as `ServerApi::v1` does, or no version";
            return Err(ConfigError::new("serverApi", &*api.version, reason, remedy));
        }
        let wire_versions = self.wire_versions;
        if wire_versions.min < 0 || wire_versions.min > wire_versions.max {
            let shown = format!("{}..={}", wire_versions.min, wire_versions.max);
            let reason = "there is no such version";
            let remedy = "let the lowest version be at least 0 and at most the highest";
            return Err(ConfigError::new("wireVersions", shown, reason, remedy));
        }
        Ok(())
    }

    /// Checks the explicit topology type (SDAM: "Initial TopologyType").
    fn check_topology_type(&self) -> Outcome {
        let Some(topology_type) = self.initial_topology_type else {
            return Ok(());
        };
        let invalid = |reason: &str, remedy: &str| {
            let shown = topology_type.to_string();
            Err(ConfigError::new("initialTopologyType", shown, reason, remedy))
        };
        if topology_type == TopologyType::ReplicaSetWithPrimary {
            return invalid(
                "no topology knows a primary before it is discovered",
                "begin with ReplicaSetNoPrimary",
            );
        }
        if self.replica_set.is_some()
            && !matches!(topology_type, TopologyType::Single | TopologyType::ReplicaSetNoPrimary)
        {
            return invalid(
                "`replicaSet` is set",
                "begin with Single or ReplicaSetNoPrimary, or set no `replicaSet`",
            );
        }
        let single = topology_type == TopologyType::Single;
        if self.direct_connection.is_some_and(|direct| direct != single) {
            return invalid("it contradicts `directConnection`", "set one of the two");
        }
        match (self.load_balanced, topology_type == TopologyType::LoadBalanced) {
            (true, false) => invalid("it contradicts `loadBalanced`", "set one of the two"),
            (false, true) => invalid(
                "`loadBalanced` is not true, so connections would not ask for their service",
                "set `loadBalanced` to true, which makes the topology begin so",
            ),
            _ => Ok(()),
        }
    }

    fn check_seeds(&self) -> Outcome {
        let count = self.distinct_seeds().len();
        if count > self.max_servers {
            let shown = self.max_servers.to_string();
            let reason = format!("there are {count} seeds");
            let remedy = "allow more servers, or name fewer seeds";
            return Err(ConfigError::new("maxServers", shown, reason, remedy));
        }
        if count > 1 && self.topology_type() == TopologyType::Single {
            let (option, value) = match self.initial_topology_type {
                Some(_) => ("initialTopologyType", "Single"),
                None => ("directConnection", "true"),
            };
            let reason = format!("there are {count} hosts");
            let remedy = "name one host";
            return Err(ConfigError::new(option, value, reason, remedy));
        }
        Ok(())
    }

    /// Checks the options of load-balanced mode (Load Balancers: "loadBalanced").
    fn check_load_balanced(&self) -> Outcome {
        if self.topology_type() != TopologyType::LoadBalanced {
            return Ok(());
        }
        let invalid = |reason: &str, remedy: &str| {
            Err(ConfigError::new("loadBalanced", "true", reason, remedy))
        };
        if self.distinct_seeds().len() > 1 {
            return invalid(
                "there is more than one host",
                "name the load balancer, and no other host",
            );
        }
        if self.replica_set.is_some() {
            return invalid("`replicaSet` is set", "set one of the two");
        }
        if self.direct_connection == Some(true) {
            return invalid("`directConnection` is true", "set one of the two");
        }
        Ok(())
    }

    /// Checks the options that concern SRV (SDAM: "directConnection"; Initial DNS Seedlist
    /// Discovery: "srvMaxHosts").
    fn check_srv(&self) -> Outcome {
        let Some(srv) = &self.srv else {
            return Ok(());
        };
        if self.direct_connection == Some(true) {
            let reason = "an SRV record may list several hosts";
            let remedy = "name the one host in a mongodb:// string";
            return Err(ConfigError::new("directConnection", "true", reason, remedy));
        }
        let invalid = |reason: &str| {
            let shown = srv.max_hosts.to_string();
            Err(ConfigError::new("srvMaxHosts", shown, reason, "leave one of the two out"))
        };
        match srv.max_hosts {
            0 => Ok(()),
            _ if self.replica_set.is_some() => invalid("`replicaSet` is set"),
            _ if self.load_balanced => invalid("`loadBalanced` is true"),
            _ => Ok(()),
        }
    }
}

/// The fields shared by errors and warnings.
#[derive(Clone, PartialEq, Eq)]
struct Parts {
    option: Box<str>,
    value: Box<str>,
    reason: Box<str>,
    /// The remedy of an error, or the consequence of a warning.
    outcome: Box<str>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", Escaped(&self.option))?;
        if !self.value.is_empty() {
            write!(f, " is `{}`", Escaped(&self.value))?;
        }
        write!(f, ": {}; {}", Escaped(&self.reason), Escaped(&self.outcome))
    }
}

/// Text with its control characters escaped, so that a line break at the end of a value is visible
/// and the message stays on one line.
pub(crate) struct Escaped<'t>(pub(crate) &'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(char::is_control) {
            let (text, last) = match part.chars().last().filter(|last| last.is_control()) {
                Some(last) => (part.get(..part.len() - last.len_utf8()), Some(last)),
                None => (Some(part), None),
            };
            f.write_str(text.unwrap_or_default())?;
            if let Some(last) = last {
                write!(f, "{}", last.escape_default())?;
            }
        }
        Ok(())
    }
}
