//! SRV strings: the name to look up, and the options of its TXT record.

use alloc::{boxed::Box, format, string::ToString, vec::Vec};

use super::query::{Place, Query};
use crate::{
    options::{ConfigError, Srv, Warning},
    uri_options::{Settings, typed},
};

/// Creates the look-up of `host` from the options.
pub(super) fn lookup(host: &str, settings: &Settings) -> Srv {
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
pub(super) fn merge_txt(
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
