//! SRV strings: the name to look up, and the options of its TXT record.

use alloc::{boxed::Box, format, string::ToString};

use super::percent;
use crate::{
    options::{ConfigError, Srv},
    uri_options::{self, HIDDEN, Settings, Value},
};

/// The only options a TXT record may hold (Initial DNS Seedlist Discovery: "Default Connection
/// String Options").
const TXT_OPTIONS: [&str; 3] = ["authSource", "loadBalanced", "replicaSet"];

/// Creates the lookup of `host` from the options.
pub(super) fn lookup(host: &str, settings: &Settings) -> Srv {
    let mut srv = Srv::new(host);
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

/// Adds the options of the one TXT record of `host`, its strings concatenated, where `settings` has
/// none.
pub(super) fn merge_txt(
    settings: &mut Settings,
    host: &str,
    records: &[Box<str>],
) -> Result<(), ConfigError> {
    let invalid = |option: &str, value: &str, reason: &str| {
        ConfigError::new(
            format!("TXT record of {host}: {option}"),
            value,
            reason,
            "let the record hold authSource, loadBalanced and replicaSet only, as name=value \
             separated by `&`",
        )
    };
    let record = match records {
        [] => return Ok(()),
        [record] => record,
        _ => {
            return Err(ConfigError::new(
                format!("TXT records of {host}"),
                records.len().to_string(),
                "there is more than one",
                "put all options into one record",
            ));
        }
    };
    for pair in record.split('&').filter(|pair| !pair.is_empty()) {
        let Some((key, text)) = pair.split_once('=') else {
            return Err(invalid(pair, "", "the option has no value"));
        };
        let row = match uri_options::find(key) {
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
