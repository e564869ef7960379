//! Errors in replies to commands that concern the state of the server (SDAM: "Error handling").

use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;

#[cfg(test)]
mod tests;

use crate::{
    document::{Field, Fields, KeptField, Malformed},
    error::{ErrorKind, ServerError, Stage},
    ids::TopologyVersion,
};

/// The maximum number of error labels that are read from a reply.
const MAX_LABELS: usize = 64;

/// Returns the error in the reply to a command, if there is one that can matter to SDAM.
///
/// `bytes` is the BSON document of the reply. An error is, in this order:
/// `ok` other than 1, with `errmsg`, `code` and `codeName`;
/// the `$err` and `code` of an OP_REPLY that failed (QueryFailure);
/// a `writeConcernError`, with `code` and `errmsg` of its own;
/// the `err` and `code` of a legacy getLastError.
/// Labels and topology version are those of the reply itself, and `stage` is how far the
/// connection had come. `writeErrors` are about the operation and never about the server, so they
/// are ignored (SDAM: "Parsing not writable primary and node is recovering errors").
///
/// Bytes that are not BSON are not an error of the server: the result is `None`, and the caller
/// has to report the connection that they were read from as broken.
pub fn error(bytes: &[u8], stage: Stage) -> Option<ServerError> {
    let mut failure = Failure::default();
    let fields = Fields::of(bytes).ok()?;
    fields.each(|field| failure.take(field.key(), field)).ok()?;
    failure.into_error(stage)
}

/// Returns whether the reply `bytes` has `ok: 1`: the command has run, perhaps with errors of single
/// writes or of the write concern.
pub fn is_ok(bytes: &[u8]) -> bool {
    integer(bytes, "ok") == Some(1)
}

/// Returns the time that an overloaded server suggests as the base of backoffs, if it is positive
/// (Client Backpressure: "baseBackoffMS").
pub fn base_backoff(bytes: &[u8]) -> Option<Duration> {
    let millis = integer(bytes, "baseBackoffMS")?;
    let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis))
}

/// Returns the whole number in the field `name`.
fn integer(bytes: &[u8], name: &str) -> Option<i64> {
    let mut found = None;
    let fields = Fields::of(bytes).ok()?;
    fields
        .each(|field| {
            if field.key() == name {
                found = field.integer();
            }
            Ok(())
        })
        .ok()?;
    found
}

/// The fields of a reply that describe a failed command.
#[derive(Default)]
pub(crate) struct Failure<'a> {
    /// Whether there is an `ok`, and whether it is 1.
    ok: Option<bool>,
    message: Option<KeptField<'a>>,
    code: Option<i32>,
    code_name: Option<&'a str>,
    labels: Option<KeptField<'a>>,
    /// The `topologyVersion`, which successful replies to hello have as well.
    pub(crate) topology_version: Option<TopologyVersion>,
    dollar_err: Option<KeptField<'a>>,
    write_concern: Option<WriteConcernError<'a>>,
    legacy_err: Option<KeptField<'a>>,
}

#[derive(Default)]
struct WriteConcernError<'a> {
    message: Option<KeptField<'a>>,
    code: Option<i32>,
    code_name: Option<&'a str>,
}

impl<'a> Failure<'a> {
    /// Stores one field of the reply.
    pub(crate) fn take(&mut self, key: &str, field: Field<'_, 'a>) -> Result<(), Malformed> {
        match key {
            "ok" => self.ok = Some(field.integer() == Some(1)),
            "topologyVersion" => self.topology_version = field.topology_version()?,
            "errmsg" => self.message = Some(field.keep()),
            "code" => self.code = field.int32(),
            "codeName" => self.code_name = field.text(),
            "errorLabels" => self.labels = Some(field.keep()),
            "$err" => self.dollar_err = Some(field.keep()),
            "writeConcernError" => self.write_concern = WriteConcernError::read(field)?,
            "err" => self.legacy_err = Some(field.keep()),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.ok == Some(true)
    }

    /// Returns the error, if the fields describe one.
    pub(crate) fn into_error(self, stage: Stage) -> Option<ServerError> {
        let (message, code, code_name) = if self.ok == Some(false) {
            let message = self.message.or(self.dollar_err);
            (text(message), self.code, self.code_name)
        } else if let Some(message) = text(self.dollar_err) {
            (Some(message), self.code, self.code_name)
        } else if let Some(error) = self.write_concern {
            (text(error.message), error.code, error.code_name)
        } else {
            (Some(text(self.legacy_err)?), self.code, self.code_name)
        };
        let message = message.unwrap_or_else(|| "the server gave no reason".into());
        let mut error = ServerError::new(ErrorKind::Command, stage, message);
        error.code = code;
        error.code_name = code_name.map(Box::from);
        error.labels = labels(self.labels.as_ref());
        error.topology_version = self.topology_version;
        Some(error)
    }
}

impl<'a> WriteConcernError<'a> {
    fn read(field: Field<'_, 'a>) -> Result<Option<Self>, Malformed> {
        let Some(fields) = field.fields() else {
            return Ok(None);
        };
        let mut error = Self::default();
        fields.each(|field| {
            match field.key() {
                "errmsg" => error.message = Some(field.keep()),
                "code" => error.code = field.int32(),
                "codeName" => error.code_name = field.text(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(Some(error))
    }
}

/// Returns the text of a message, even if it is not UTF-8, because it may quote user data.
fn text(kept: Option<KeptField<'_>>) -> Option<Box<str>> {
    Some(kept?.field().text_lossy()?.into())
}

/// Returns the labels; unreadable ones are left out, so that the error is kept.
fn labels(kept: Option<&KeptField<'_>>) -> Box<[Box<str>]> {
    let mut labels: Vec<Box<str>> = Vec::new();
    if let Some(elements) = kept.and_then(|kept| kept.field().elements()) {
        let _ = elements.each(|label| {
            if labels.len() < MAX_LABELS {
                labels.extend(label.text().map(Box::from));
            }
            Ok(())
        });
    }
    labels.into()
}
