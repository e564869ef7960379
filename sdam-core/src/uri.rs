//! Connection strings.
//!
//! [`ConnectionString::parse`] supports the complete syntax and every option of the specification.
//! All of them become fields of [`Options`].
//!
//! Errors are tolerated where possible: an unknown option or an invalid value is ignored with a
//! [`Warning`]. Invalid syntax and contradictory options cause a [`ConfigError`].
//!
//! # Options that protect connections
//!
//! `tls`, `ssl`, and every option whose name begins with one of these or with `proxy`, protect the
//! data or the route of connections. For an invalid value of such an option, the specification
//! requires a warning, and [`ConnectionString::parse`] warns. But ignoring the option would leave
//! connections unprotected, so [`Options::validate`] rejects it, and no topology starts. The
//! exceptions are an empty `proxyUsername` and an empty `proxyPassword`, which have the same
//! meaning as omitting the option (SOCKS5 Support: "proxyUsername").
//!
//! # Precedence
//!
//! Options set on [`Options`] in code have precedence over the connection string, and both have
//! precedence over the TXT record of an SRV string. The only exception is `serverSelectionTryOnce`:
//! different values in the string and in code are an error (Server Selection:
//! "serverSelectionTryOnce").

mod parts;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, format, string::ToString, vec::Vec};
use core::{str::FromStr, time::Duration};

use self::parts::{Parts, Place, Query, UserInfo};
use crate::{
    address::ServerAddress,
    options::{
        Acknowledgment, ConfigError, Credential, Options, ProxyOptions, ServerMonitoringMode, Srv,
        TlsOptions, Warning, default_source,
    },
    pool::PoolOptions,
    read_preference::ReadMode,
    rng::Rng,
    srv::SrvRecords,
    uri_options::{self, Properties, Secret, Settings, Value, limit, typed},
};

/// A parsed connection string.
///
/// Its `Debug` output does not reveal the password.
#[derive(Clone, Debug)]
pub struct ConnectionString {
    /// Empty for an unresolved SRV string.
    hosts: Vec<ServerAddress>,
    srv: Option<Srv>,
    user_info: UserInfo,
    database: Option<Box<str>>,
    settings: Settings,
    warnings: Vec<Warning>,
    unguarded: Option<ConfigError>,
}

impl ConnectionString {
    /// Parses `text` (Connection String: "mongodb://" and "mongodb+srv://").
    ///
    /// White space at the end is ignored with a warning: it often comes from files, and from
    /// secrets that were created with `echo`. The work is bounded by the length of `text`, which
    /// may come from an untrusted source.
    ///
    /// # Errors
    ///
    /// If the syntax is invalid, or options contradict each other.
    ///
    /// # Examples
    ///
    /// ```
    /// use sdam_core::uri::ConnectionString;
    ///
    /// let string = ConnectionString::parse("mongodb://u:p@a,b:27018/db?replicaSet=rs&w=majority&x=1")?;
    /// assert_eq!(string.hosts().len(), 2);
    /// assert_eq!(string.auth_source(), "db");
    /// assert_eq!(
    ///     string.warnings()[0].to_string(),
    ///     "`x`: there is no such option; it is ignored",
    /// );
    /// let options = string.into_options()?;
    /// assert_eq!(options.replica_set.as_deref(), Some("rs"));
    /// # Ok::<_, sdam_core::options::ConfigError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let whole = text.trim_end();
        if whole.len() < text.len() {
            let reason = "it ends with white space, perhaps the line break of a file";
            warnings.push(Warning::new("connection string", "", reason, "that is left out"));
        }
        let parts = Parts::split(whole)?;
        let user_info = parts.user_info()?;
        let (hosts, host) = if parts.srv {
            (Vec::new(), Some(parts.srv_host()?))
        } else {
            (parts.hosts(&mut warnings)?, None)
        };
        let database = parts.database()?;
        let place = if parts.srv { Place::Srv } else { Place::Standard };
        let mut query = Query::read(parts.query, place, parts.confidential)?;
        let srv = host.map(|host| {
            // SRV strings enable TLS by default (Initial DNS Seedlist Discovery: "TLS").
            query.settings.entry("tls").or_insert(Value::Flag(true));
            lookup(&host, &query.settings)
        });
        warnings.append(&mut query.warnings);
        let contradiction = TlsOptions::of(&query.settings).err();
        let string = Self {
            hosts,
            srv,
            user_info,
            database,
            settings: query.settings,
            warnings,
            unguarded: query.unguarded.or(contradiction),
        };
        // Contradictory options of an SRV string are reported before its hosts are looked up.
        string.draft().validate()?;
        Ok(string)
    }

    /// Returns the hosts in the given order. An SRV string has no hosts until it is
    /// [resolved](Self::resolved).
    pub fn hosts(&self) -> &[ServerAddress] {
        &self.hosts
    }

    /// Returns the SRV look-up if this is an SRV string.
    pub fn srv(&self) -> Option<&Srv> {
        self.srv.as_ref()
    }

    /// Returns the user name.
    pub fn user(&self) -> Option<&str> {
        self.user_info.user.as_deref()
    }

    /// Returns the password. An empty password is not the same as no password.
    pub fn password(&self) -> Option<&Secret> {
        self.user_info.password.as_ref()
    }

    /// Returns the database in the path.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Returns the database that defines the user: `authSource`, or else the default that follows
    /// from the mechanism and the path (Authentication: "Connection String Options").
    pub fn auth_source(&self) -> &str {
        let default = || default_source(self.text("authMechanism"), self.database());
        self.text("authSource").unwrap_or_else(default)
    }

    /// Returns the credential for pooled connections. There is one if the string has a user name or
    /// an `authMechanism` (Authentication: "Credential delimiter in URI implies authentication",
    /// "Authentication source and URI database do not imply authentication").
    pub fn credential(&self) -> Option<Credential> {
        let mechanism = self.text("authMechanism");
        (self.user().is_some() || mechanism.is_some()).then(|| Credential {
            user: self.user_info.user.clone(),
            password: self.user_info.password.clone(),
            source: Some(self.auth_source().into()),
            mechanism: mechanism.map(Into::into),
            properties: typed::<&Properties>(&self.settings, "authMechanismProperties").cloned(),
        })
    }

    /// Returns the value of the option `name`, ignoring case, if the option was given and is valid.
    pub fn option(&self, name: &str) -> Option<&Value> {
        let (row, _) = uri_options::find(name)?;
        self.settings.get(row.name)
    }

    /// Returns the names of all options that a string may have, in the specification's spelling.
    pub fn known_options() -> impl ExactSizeIterator<Item = &'static str> {
        uri_options::rows().iter().map(|row| row.name)
    }

    /// Returns the options that were given and are valid, with the specification's names, sorted by
    /// name.
    ///
    /// An SRV string always has `tls`, because it is on by default.
    pub fn options(&self) -> impl ExactSizeIterator<Item = (&'static str, &Value)> {
        self.settings.iter().map(|(name, value)| (*name, value))
    }

    /// Returns the warnings in the order of their causes in the string; those about the TXT record
    /// come last.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns `connectTimeoutMS`, which also limits the look-ups of an SRV string; `None` for no
    /// limit.
    pub fn connect_timeout(&self) -> Option<Duration> {
        self.draft().connect_timeout
    }

    /// Resolves the SRV string with the results of its look-ups: its SRV records, and its TXT
    /// records with the strings of each record concatenated (Initial DNS Seedlist Discovery:
    /// "Seedlist Discovery"). The hosts are validated; if there are more than `srvMaxHosts`, `rng`
    /// chooses among them.
    ///
    /// Options of the string have precedence over those of the TXT record, which may only contain
    /// `authSource`, `loadBalanced` and `replicaSet`. Wrong and repeated values cause the same
    /// [warnings](Self::warnings) as in the string.
    ///
    /// # Errors
    ///
    /// If there are no hosts, if a host is not in the [domain](Srv::domain), if the TXT record is
    /// invalid or not the only one, or if options contradict each other.
    pub fn resolved(
        mut self,
        records: &SrvRecords,
        txt: &[Box<str>],
        rng: &mut Rng,
    ) -> Result<Self, ConfigError> {
        if let Some(srv) = &mut self.srv {
            self.hosts = srv.seeds(&records.hosts, rng)?;
            srv.ttl = records.ttl;
            merge_txt(&mut self.settings, &mut self.warnings, &srv.host, txt)?;
            self.draft().validate()?;
        }
        Ok(self)
    }

    /// Converts the connection string into the options of a topology.
    ///
    /// # Errors
    ///
    /// If the string is an SRV string whose hosts have not been looked up.
    pub fn into_options(self) -> Result<Options, ConfigError> {
        if let Some(srv) = &self.srv
            && self.hosts.is_empty()
        {
            let reason = "the hosts have to be looked up first";
            let remedy = "pass the result of `sdam::resolve` to `TopologyBuilder::new`, with the Cargo \
                          feature `srv` of sdam; or pass the records to `ConnectionString::resolved`";
            return Err(ConfigError::new("mongodb+srv", srv.host.clone(), reason, remedy));
        }
        let mut options = self.draft();
        options.uri_warnings = self.warnings;
        // The warnings are added only now, because the official test files require that parsing the
        // string does not cause them.
        let unsupported = TlsOptions::ocsp_warnings(&self.settings);
        options.uri_warnings.extend(unsupported);
        options.uri_unguarded = self.unguarded;
        Ok(options)
    }

    fn text(&self, name: &str) -> Option<&str> {
        typed(&self.settings, name)
    }

    /// Returns the options without validating them as a whole.
    fn draft(&self) -> Options {
        let mut options = Options::new(self.hosts.clone());
        options.srv.clone_from(&self.srv);
        options.credential = self.credential();
        options.tls = TlsOptions::of(&self.settings).ok().flatten();
        options.proxy = ProxyOptions::of(&self.settings);
        apply(&self.settings, &mut options);
        options
    }
}

impl FromStr for ConnectionString {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text)
    }
}

impl Options {
    /// Parses a connection string into options.
    ///
    /// The user name and password become [`Options::credential`]; the database in the path is only
    /// available from a [`ConnectionString`].
    ///
    /// # Errors
    ///
    /// The errors of [`ConnectionString::parse`]. Every SRV string is also an error, because its
    /// hosts would have to be looked up.
    ///
    /// # Examples
    ///
    /// ```
    /// use core::time::Duration;
    /// use sdam_core::options::Options;
    ///
    /// let mut options = Options::parse("mongodb://a/?heartbeatFrequencyMS=1000")?;
    /// options.app_name = Some("inventory".into());
    /// assert_eq!(options.monitor_frequency(), Duration::from_secs(1));
    ///
    /// let error = Options::parse("mongodb://a,b/?directConnection=true").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`directConnection` is `true`: there are 2 hosts; name one host",
    /// );
    /// # Ok::<_, sdam_core::options::ConfigError>(())
    /// ```
    pub fn parse(uri: &str) -> Result<Self, ConfigError> {
        ConnectionString::parse(uri)?.into_options()
    }
}

impl FromStr for Options {
    type Err = ConfigError;

    fn from_str(uri: &str) -> Result<Self, ConfigError> {
        Self::parse(uri)
    }
}

/// Applies the settings, except those for the credential, TLS and the proxy.
fn apply(settings: &Settings, options: &mut Options) {
    let text = |name| typed::<&str>(settings, name);
    let time = |name| match settings.get(name) {
        Some(Value::Duration(time)) => Some(*time),
        _ => None,
    };
    options.app_name = text("appname").map(Into::into);
    options.connect_timeout = time("connectTimeoutMS").map_or(options.connect_timeout, limit);
    options.direct_connection = typed(settings, "directConnection");
    options.heartbeat_frequency = time("heartbeatFrequencyMS");
    options.load_balanced = typed(settings, "loadBalanced").unwrap_or_default();
    options.local_threshold = time("localThresholdMS").unwrap_or(options.local_threshold);
    let staleness = typed(settings, "maxStalenessSeconds").map(u32::into);
    options.read_preference.max_staleness = staleness.map(Duration::from_secs);
    let mode = text("readPreference").and_then(ReadMode::parse);
    options.read_preference.mode = mode.unwrap_or_default();
    if let Some(Value::TagSets(sets)) = settings.get("readPreferenceTags") {
        options.read_preference.tag_sets.clone_from(sets);
    }
    options.replica_set = text("replicaSet").map(Into::into);
    let mut modes = ServerMonitoringMode::ALL.iter().copied();
    let mode = modes.find(|mode| text("serverMonitoringMode") == Some(mode.as_str()));
    options.server_monitoring_mode = mode.unwrap_or_default();
    let timeout = time("serverSelectionTimeoutMS");
    options.server_selection_timeout = timeout.unwrap_or(options.server_selection_timeout);
    options.uri_try_once = typed(settings, "serverSelectionTryOnce");
    options.server_selection_try_once = options.uri_try_once;
    let interval = time("socketCheckIntervalMS");
    options.socket_check_interval = interval.unwrap_or(options.socket_check_interval);
    options.auth_source = text("authSource").map(Into::into);
    apply_to_pool(settings, &mut options.pool);
    options.timeout = time("timeoutMS");
    options.socket_timeout = typed(settings, "socketTimeoutMS");
    options.retry_reads = typed(settings, "retryReads").unwrap_or(options.retry_reads);
    options.retry_writes = typed(settings, "retryWrites").unwrap_or(options.retry_writes);
    let retries = typed(settings, "maxAdaptiveRetries");
    options.max_adaptive_retries = retries.unwrap_or(options.max_adaptive_retries);
    let retargets = typed(settings, "enableOverloadRetargeting");
    options.enable_overload_retargeting = retargets.unwrap_or_default();
    options.read_concern_level = text("readConcernLevel").map(Into::into);
    options.w = match settings.get("w") {
        Some(Value::Text(name)) => Some(Acknowledgment::Named(name.clone())),
        _ => typed(settings, "w").map(Acknowledgment::Nodes),
    };
    options.journal = typed(settings, "journal");
    options.w_timeout = typed(settings, "wTimeoutMS");
    if let Some(Value::List(names)) = settings.get("compressors") {
        options.compressors = names.to_vec();
    }
    options.zlib_compression_level = typed(settings, "zlibCompressionLevel");
}

fn apply_to_pool(settings: &Settings, pool: &mut PoolOptions) {
    pool.max_pool_size = typed(settings, "maxPoolSize").unwrap_or(pool.max_pool_size);
    pool.min_pool_size = typed(settings, "minPoolSize").unwrap_or(pool.min_pool_size);
    pool.max_idle_time = typed(settings, "maxIdleTimeMS");
    pool.max_connecting = typed(settings, "maxConnecting").unwrap_or(pool.max_connecting);
    pool.wait_queue_timeout = typed(settings, "waitQueueTimeoutMS");
}

/// Creates the look-up of `host` from the options.
fn lookup(host: &str, settings: &Settings) -> Srv {
    let mut srv = Srv::new(host);
    if let Some(service) = typed::<&str>(settings, "srvServiceName") {
        srv.service = service.into();
    }
    srv.max_hosts = typed(settings, "srvMaxHosts").unwrap_or_default();
    srv
}

/// Adds the options in the single TXT record of `host`, whose strings are already concatenated.
/// Options that `settings` already has are not replaced. The record is parsed like the options of
/// the connection string (Initial DNS Seedlist Discovery: "in the same way").
fn merge_txt(
    settings: &mut Settings,
    warnings: &mut Vec<Warning>,
    host: &str,
    records: &[Box<str>],
) -> Result<(), ConfigError> {
    let record = match records {
        [] => return Ok(()),
        [record] => record,
        _ => {
            let (option, count) = (format!("TXT records of {host}"), records.len().to_string());
            let (reason, remedy) = ("there is more than one", "put all options into one record");
            return Err(ConfigError::new(option, count, reason, remedy));
        }
    };
    let named = |option: &str| format!("TXT record of {host}: {option}");
    let query = Query::read(record, Place::Txt, false).map_err(|error| {
        let option = named(error.option());
        ConfigError::new(option, error.value(), error.reason(), error.remedy())
    })?;
    for (name, value) in query.settings {
        settings.entry(name).or_insert(value);
    }
    warnings.extend(query.warnings.iter().map(|warning| {
        let (option, value) = (named(warning.option()), warning.value());
        Warning::new(option, value, warning.reason(), warning.consequence())
    }));
    Ok(())
}
