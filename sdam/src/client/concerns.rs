use sdam_core::{
    command::CommandFields,
    document::DocumentWriter,
    options::{ConfigError, Warning},
    uri_options::{DriverOptions, Value},
};

use super::{command::Kind, limit::Limit};

/// The read and the write concern of the connection string, for commands without their own.
#[derive(Clone, Debug, Default)]
pub(super) struct Concerns {
    /// `readConcernLevel`
    level: Option<Box<str>>,
    w: Option<Value>,
    journal: Option<bool>,
    /// `wTimeoutMS`
    w_timeout: Option<i64>,
}

impl Concerns {
    pub(super) fn of(driver: &DriverOptions) -> Result<Self, ConfigError> {
        let w = driver.w();
        if w == Some(&Value::Number(0)) {
            return Err(ConfigError::new(
                "w",
                "0",
                "this client waits for the reply to every write",
                "leave the option out, or set it to at least 1",
            ));
        }
        let millis = |time: std::time::Duration| i64::try_from(time.as_millis());
        Ok(Self {
            level: driver.read_concern_level().map(Box::from),
            w: w.cloned(),
            journal: driver.journal(),
            w_timeout: driver.w_timeout().and_then(|time| millis(time).ok()),
        })
    }

    /// Adds the concern to a command that supports it, and never to a generic command (Read and
    /// Write Concern: "Generic Command Method").
    pub(super) fn append_to(
        &self,
        document: &mut DocumentWriter,
        kind: Kind,
        fields: &CommandFields<'_>,
        limit: Limit,
    ) {
        match kind {
            Kind::Read if fields.takes_read_concern() => {
                document.document_unless_empty("readConcern", |concern| {
                    concern.text("level", self.level.as_deref());
                });
            }
            Kind::Write if fields.takes_write_concern() => {
                document.document_unless_empty("writeConcern", |concern| {
                    match &self.w {
                        Some(Value::Number(servers)) => concern.int64("w", *servers),
                        Some(Value::Text(name)) => concern.text("w", &**name),
                        _ => {}
                    }
                    concern.boolean("j", self.journal);
                    // The time limit of the operation replaces this one.
                    concern.int64("wtimeout", self.w_timeout.filter(|_| !limit.is_set()));
                });
            }
            _ => {}
        }
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
