use sdam_core::{
    command::CommandFields,
    document::DocumentWriter,
    options::{Acknowledgment, ConfigError, Options, Warning},
};

use super::{command::Kind, limit::Limit};

/// Refuses a write concern that this client does not support.
pub(super) fn check(options: &Options) -> Result<(), ConfigError> {
    if options.w != Some(Acknowledgment::Nodes(0)) {
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
    options: &Options,
    kind: Kind,
    fields: &CommandFields<'_>,
    limit: Limit,
) {
    match kind {
        Kind::Read if fields.takes_read_concern() => {
            document.document_unless_empty("readConcern", |concern| {
                concern.text("level", options.read_concern_level.as_deref());
            });
        }
        Kind::Write if fields.takes_write_concern() => {
            document.document_unless_empty("writeConcern", |concern| {
                match &options.w {
                    Some(Acknowledgment::Nodes(nodes)) => concern.int64("w", i64::from(*nodes)),
                    Some(Acknowledgment::Named(name)) => concern.text("w", &**name),
                    _ => {}
                }
                concern.boolean("j", options.journal);
                // The time limit of the operation replaces `wTimeoutMS`.
                let time = options.w_timeout.filter(|_| !limit.is_set());
                let millis = time.and_then(|time| i64::try_from(time.as_millis()).ok());
                concern.int64("wtimeout", millis);
            });
        }
        _ => {}
    }
}

/// Returns the warnings about options that a client does not honour.
pub(super) fn ignored(options: &Options) -> Vec<Warning> {
    let warning = |name, value, reason| Warning::new(name, value, reason, "the option is ignored");
    let compression = "this client does not compress messages";
    let mut warnings = Vec::new();
    if !options.compressors.is_empty() {
        warnings.push(warning("compressors", options.compressors.join(","), compression));
    }
    if let Some(level) = options.zlib_compression_level {
        warnings.push(warning("zlibCompressionLevel", level.to_string(), compression));
    }
    if options.timeout.is_some() {
        let limits = [
            ("socketTimeoutMS", options.socket_timeout),
            ("waitQueueTimeoutMS", options.pool.wait_queue_timeout),
            ("wTimeoutMS", options.w_timeout),
        ];
        warnings.extend(limits.into_iter().filter_map(|(name, limit)| {
            let millis = limit?.as_millis().to_string();
            Some(warning(name, millis, "`timeoutMS` replaces it"))
        }));
    }
    warnings
}
