//! Errors in the replies to commands (SDAM: "Error handling").

use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;

#[cfg(test)]
mod tests;

use crate::{
    document::{Field, Fields, Malformed},
    error::{Error, ErrorKind, Stage},
    ids::TopologyVersion,
};

/// The maximum number of error labels to read from a reply.
const MAX_LABELS: usize = 64;

/// Checks the reply to a command, which is the BSON document `bytes`. `Ok` means that the command
/// succeeded.
///
/// If `Ok` contains an error, the reply has `ok: 1`, so the command has run. The error is a
/// `writeConcernError`, with its own `code` and `errmsg`, or comes from the `err` and `code` of a
/// legacy getLastError. `writeErrors` concern the operation and never the server, so they are left
/// to [`write_errors`] (SDAM: "Parsing not writable primary and node is recovering errors"). An
/// error takes its labels and its topology version from the top level of the reply; `stage` is the
/// stage that the connection had reached. An error from the server carries the
/// [reply](Error::reply).
///
/// # Errors
///
/// [`ErrorKind::Command`] with `errmsg`, `code` and `codeName` if `ok` is not 1, or if the reply
/// contains the `$err` of a failed OP_REPLY (QueryFailure). [`ErrorKind::Protocol`] if there is no
/// `ok`, or if the bytes are not BSON; the connection that delivered them is then unusable.
pub fn check(bytes: &[u8], stage: Stage) -> Result<Option<Error>, Error> {
    let mut failure = ReplyFailure::default();
    let read = Fields::of(bytes);
    read.and_then(|mut fields| fields.try_for_each(|field| failure.take(field?)))
        .map_err(|malformed| Error::protocol(stage, malformed.0))?;
    let with_reply = |error: Error| match error.kind() {
        ErrorKind::Command => error.with_reply(bytes),
        _ => error,
    };
    failure.check(stage).map(|error| error.map(with_reply)).map_err(with_reply)
}

/// Returns the error in the reply to a command, if there is one that can affect the topology. This
/// is the error that [`check`] finds, whether or not the command has run.
pub fn error(bytes: &[u8], stage: Stage) -> Option<Error> {
    check(bytes, stage).unwrap_or_else(Some)
}

/// Returns whether the reply `bytes` has `ok: 1`: the command has run, possibly with write errors
/// or a write concern error.
pub fn is_ok(bytes: &[u8]) -> bool {
    integer(bytes, "ok") == Some(1)
}

/// The error of a single write in a command, an element of `writeErrors`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteError {
    /// The position of the write in its command, from 0.
    pub index: usize,
    /// The code of the error, such as 11000 for a duplicate key.
    pub code: Option<i32>,
    /// The human-readable message.
    pub message: Box<str>,
}

/// Returns the errors of individual writes in the reply `bytes`, in order: `writeErrors` or, in the
/// reply to a `bulkWrite`, the failed results in the first batch of the cursor.
pub fn write_errors(bytes: &[u8]) -> Vec<WriteError> {
    let mut lists = Fields::readable(bytes).filter_map(|field| match field.name() {
        b"writeErrors" => Some(field),
        // Other cursors contain documents of the user.
        b"cursor" if integer(bytes, "nErrors")? > 0 => {
            let mut batches = field.fields().map_while(Result::ok);
            batches.find(|field| field.name() == b"firstBatch")
        }
        _ => None,
    });
    // An unreadable element ends the list.
    let elements = lists.next().into_iter().flat_map(Field::elements);
    elements.map_while(|element| WriteError::read(element.ok()?).ok()).flatten().collect()
}

impl WriteError {
    fn read(element: Field<'_>) -> Result<Option<Self>, Malformed> {
        let mut index = None;
        let mut failure = ReplyFailure::default();
        for field in element.fields() {
            let field = field?;
            match field.name() {
                b"index" | b"idx" => index = field.integer(),
                _ => failure.take(field)?,
            }
        }
        Ok(index.filter(|_| !failure.is_ok()).and_then(|index| {
            Some(Self {
                index: index.try_into().ok()?,
                code: failure.code,
                message: reason(text(failure.message)),
            })
        }))
    }
}

/// Returns the base backoff that an overloaded server suggests, unless it is zero or negative
/// (Client Backpressure: "baseBackoffMS").
pub fn base_backoff(bytes: &[u8]) -> Option<Duration> {
    let millis = integer(bytes, "baseBackoffMS")?;
    let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis))
}

/// Returns the integer in the field `name`.
fn integer(bytes: &[u8], name: &str) -> Option<i64> {
    let mut found = None;
    for field in Fields::of(bytes).ok()? {
        let field = field.ok()?;
        if field.name() == name.as_bytes() {
            found = field.integer();
        }
    }
    found
}

/// The fields of a reply that describe a failed command.
#[derive(Default)]
pub(crate) struct ReplyFailure<'a> {
    /// True if `ok` is 1; `None` if it is missing.
    ok: Option<bool>,
    message: Option<Field<'a>>,
    code: Option<i32>,
    code_name: Option<&'a str>,
    labels: Option<Field<'a>>,
    /// The `topologyVersion`, which successful replies to hello also contain.
    pub(crate) topology_version: Option<TopologyVersion>,
    dollar_err: Option<Field<'a>>,
    write_concern: Option<WriteConcernError<'a>>,
    legacy_err: Option<Field<'a>>,
}

#[derive(Default)]
struct WriteConcernError<'a> {
    message: Option<Field<'a>>,
    code: Option<i32>,
    code_name: Option<&'a str>,
}

impl<'a> ReplyFailure<'a> {
    /// Stores one field of the reply.
    pub(crate) fn take(&mut self, field: Field<'a>) -> Result<(), Malformed> {
        match field.name() {
            b"ok" => self.ok = Some(field.integer() == Some(1)),
            b"topologyVersion" => self.topology_version = field.topology_version()?,
            b"errmsg" => self.message = Some(field),
            b"code" => self.code = field.int32(),
            b"codeName" => self.code_name = field.text(),
            b"errorLabels" => self.labels = Some(field),
            b"$err" => self.dollar_err = Some(field),
            b"writeConcernError" => self.write_concern = WriteConcernError::read(field)?,
            b"err" => self.legacy_err = Some(field),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.ok == Some(true)
    }

    /// Checks a reply by its parsed fields; see [`check`](self::check).
    pub(crate) fn check(&self, stage: Stage) -> Result<Option<Error>, Error> {
        let error = |message: Option<Box<str>>, code, code_name: Option<&str>| {
            Error::new(ErrorKind::Command, stage, reason(message))
                .with_code(code)
                .with_code_name(code_name)
                .with_labels(labels(self.labels))
                .with_topology_version(self.topology_version)
        };
        let dollar_err = self.dollar_err;
        if self.ok == Some(false) {
            let message = text(self.message.or(dollar_err));
            return Err(error(message, self.code, self.code_name));
        }
        if let Some(message) = text(dollar_err) {
            return Err(error(Some(message), self.code, self.code_name));
        }
        if self.ok.is_none() {
            let text = "the reply has no field `ok`";
            return Err(Error::new(ErrorKind::Protocol, stage, text));
        }
        if let Some(failed) = &self.write_concern {
            let message = text(failed.message);
            return Ok(Some(error(message, failed.code, failed.code_name)));
        }
        let legacy = text(self.legacy_err);
        Ok(legacy.map(|message| error(Some(message), self.code, self.code_name)))
    }
}

impl<'a> WriteConcernError<'a> {
    fn read(field: Field<'a>) -> Result<Option<Self>, Malformed> {
        let mut error = Self::default();
        for field in field.fields() {
            let field = field?;
            match field.name() {
                b"errmsg" => error.message = Some(field),
                b"code" => error.code = field.int32(),
                b"codeName" => error.code_name = field.text(),
                _ => {}
            }
        }
        Ok(field.is_document().then_some(error))
    }
}

/// Returns the message in `field`. Invalid UTF-8 is replaced, because a message may quote user
/// data.
fn text(field: Option<Field<'_>>) -> Option<Box<str>> {
    field?.text_lossy()
}

fn reason(message: Option<Box<str>>) -> Box<str> {
    message.unwrap_or_else(|| "the server gave no reason".into())
}

/// Returns the error labels. Unreadable labels are skipped, so that the error itself is not lost.
fn labels(field: Option<Field<'_>>) -> impl Iterator<Item = &str> {
    let elements = field.into_iter().flat_map(Field::elements).map_while(Result::ok);
    elements.filter_map(Field::text).take(MAX_LABELS)
}
