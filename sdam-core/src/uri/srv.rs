//! SRV strings: the name to look up, and the options of its TXT record.

use alloc::{boxed::Box, format, string::String};

use super::{percent, query::Settings, table, value::Value};
use crate::options::{ConfigError, HIDDEN};

/// The only options a TXT record may hold (Initial DNS Seedlist Discovery: "Default Connection
/// String Options").
const TXT_OPTIONS: [&str; 3] = ["authSource", "loadBalanced", "replicaSet"];

/// The SRV lookup of an SRV string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Srv {
    /// The host of the connection string, in lower case and without a final dot; its TXT record
    /// may hold options.
    pub host: Box<str>,
    /// `srvServiceName`: the first label of the name that is looked up, without its underscore.
    pub service: Box<str>,
    /// `srvMaxHosts`: the maximum number of hosts in use; 0: all of them.
    pub max_hosts: u32,
    /// `srvAllowedHostsSuffix`: the required end of the hosts' names, after a dot, instead of the
    /// domain of [`host`](Self::host); in lower case and without dots around it.
    pub allowed_hosts_suffix: Option<Box<str>>,
}

impl Srv {
    /// Creates the lookup of the `mongodb` service of `host`, with all its hosts.
    pub fn new(host: &str) -> Self {
        Self {
            host: host.trim_end_matches('.').to_ascii_lowercase().into(),
            service: "mongodb".into(),
            max_hosts: 0,
            allowed_hosts_suffix: None,
        }
    }

    /// Creates the lookup of `host` from the options.
    pub(super) fn of(host: &str, settings: &Settings) -> Self {
        let mut srv = Self::new(host);
        if let Some(Value::Text(service)) = settings.get("srvServiceName") {
            srv.service = service.clone();
        }
        if let Some(Value::Number(max)) = settings.get("srvMaxHosts") {
            srv.max_hosts = u32::try_from(*max).unwrap_or_default();
        }
        if let Some(Value::Text(suffix)) = settings.get("srvAllowedHostsSuffix") {
            let suffix = suffix.trim_matches('.').to_ascii_lowercase();
            srv.allowed_hosts_suffix = Some(suffix.into());
        }
        srv
    }

    /// Returns the name whose SRV record lists the hosts, such as
    /// `_mongodb._tcp.cluster.example.com`.
    pub fn query_name(&self) -> String {
        format!("_{}._tcp.{}", self.service, self.host)
    }
}

/// Adds the options of a TXT record, its strings concatenated, where `settings` has none.
pub(super) fn merge_txt(settings: &mut Settings, record: &str) -> Result<(), ConfigError> {
    let invalid = |option: &str, value: &str, reason: &str| {
        ConfigError::new(
            format!("TXT record: {option}"),
            value,
            reason,
            "let the record hold authSource, loadBalanced and replicaSet only, as name=value \
             separated by `&`",
        )
    };
    for pair in record.split('&').filter(|pair| !pair.is_empty()) {
        let Some((key, text)) = pair.split_once('=') else {
            return Err(invalid(pair, "", "the option has no value"));
        };
        let row = match table::find(key) {
            Some((row, None)) if TXT_OPTIONS.contains(&row.name) => row,
            _ => return Err(invalid(key, HIDDEN, "it is not allowed there")),
        };
        let value = percent::decode(text).map_err(|reason| invalid(row.name, text, reason))?;
        let value = row.kind.parse(&value);
        let value = value.map_err(|refusal| invalid(row.name, text, &refusal.reason))?;
        settings.entry(row.name).or_insert(value);
    }
    Ok(())
}

/// Turns encryption on unless it is turned off (Initial DNS Seedlist Discovery: "TLS").
pub(super) fn default_tls(settings: &mut Settings) {
    settings.entry("tls").or_insert(Value::Flag(true));
}
