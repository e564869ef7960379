//! Converts errors from the operating system and the wire codec to errors of a connection.

use std::io;

use sdam_core::error::{Error, ErrorKind, Stage};

use crate::wire::WireError;

/// Converts an I/O error. `message` describes the action that failed.
///
/// If the runtime's own deadline caused `source`, the result is a timeout. If the operating system
/// reports `ETIMEDOUT` on an established connection, the result is a network error: TCP has given
/// up on a silent peer, so the connection is broken and not merely slow.
///
/// If `source` contains an [`Error`], that error is returned unchanged. A stream returns such an
/// error if it knows the cause, for example that the server rejected the client certificate.
///
/// At [`Stage::Tls`] the result is a protocol error if `source` has a kind that TLS libraries use
/// for a bad certificate or host name: `InvalidData`, `InvalidInput` or `Other`.
pub fn from_io(stage: Stage, message: impl Into<Box<str>>, source: io::Error) -> Error {
    if let Some(inner) = source.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return inner.clone();
    }
    let own = source.raw_os_error().is_none();
    let kind = match source.kind() {
        io::ErrorKind::TimedOut if own || stage <= Stage::Connect => ErrorKind::Timeout,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other
            if own && stage == Stage::Tls =>
        {
            ErrorKind::Protocol
        }
        _ => ErrorKind::Network,
    };
    Error::new(kind, stage, message).with_source(source)
}

/// Converts an error from the wire codec, which reports malformed bytes, messages that are out of
/// order, and messages that are too long to be sent.
pub fn from_wire(stage: Stage, source: WireError) -> Error {
    let error = match source {
        WireError::TooLong { .. } | WireError::CommandTooLong { .. } => {
            Error::new(ErrorKind::Invalid, stage, "the message cannot be sent")
        }
        _ => Error::protocol(stage, "the message violates the wire protocol"),
    };
    error.with_source(source)
}

#[cfg(test)]
mod tests;
