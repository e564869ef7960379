use sdam_core::{
    command::CommandFields,
    document::DocumentWriter,
    options::{ConfigError, Warning},
    uri_options::{DriverOptions, Value},
};

use super::{command::Kind, limit::Limit};

/// Refuses a write concern that this client does not support.
pub(super) fn check(driver: &DriverOptions) -> Result<(), ConfigError> {
    if driver.w() != Some(&Value::Number(0)) {
        return Ok(());
    }
    let reason = "this client waits for the reply to every write";
    let remedy = "leave the option out, or set it to at least 1";
    Err(ConfigError::new("w", "0", reason, remedy))
}

/// Adds the connection string's read or write concern to a command that supports it, but never to a
/// generic command (Read and Write Concern: "Generic Command Method").
pub(super) fn append_to(
    document: &mut DocumentWriter,
    driver: &DriverOptions,
    kind: Kind,
    fields: &CommandFields<'_>,
    limit: Limit,
) {
    match kind {
        Kind::Read if fields.takes_read_concern() => {
            document.document_unless_empty("readConcern", |concern| {
                concern.text("level", driver.read_concern_level());
            });
        }
        Kind::Write if fields.takes_write_concern() => {
            document.document_unless_empty("writeConcern", |concern| {
                match driver.w() {
                    Some(Value::Number(servers)) => concern.int64("w", *servers),
                    Some(Value::Text(name)) => concern.text("w", &**name),
                    _ => {}
                }
                concern.boolean("j", driver.journal());
                // The time limit of the operation replaces `wTimeoutMS`.
                let time = driver.w_timeout().filter(|_| !limit.is_set());
                let millis = time.and_then(|time| i64::try_from(time.as_millis()).ok());
                concern.int64("wtimeout", millis);
            });
        }
        _ => {}
    }
}

/// Returns the warnings about options that a client does not honour.
pub(super) fn ignored(driver: &DriverOptions) -> Vec<Warning> {
    let compression = "this client does not compress messages";
    let replaced = "`timeoutMS` replaces it";
    let replaced = driver.value("timeoutMS").map_or("", |_| replaced);
    [
        ("compressors", compression),
        ("zlibCompressionLevel", compression),
        ("socketTimeoutMS", replaced),
        ("waitQueueTimeoutMS", replaced),
        ("wTimeoutMS", replaced),
    ]
    .into_iter()
    .filter(|(_, reason)| !reason.is_empty())
    .filter_map(|(name, reason)| {
        let value = driver.value(name)?.to_string();
        Some(Warning::new(name, value, reason, "the option is ignored"))
    })
    .collect()
}
