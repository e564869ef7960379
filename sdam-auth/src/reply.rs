//! Parses servers' replies to authentication commands.

use bson::{RawBsonRef, RawDocument};
use sdam_core::error::Error;

/// A reply in a SASL conversation, or the corresponding part of the reply to hello.
pub(crate) struct SaslReply<'r> {
    pub(crate) conversation: i64,
    pub(crate) payload: &'r [u8],
    pub(crate) done: bool,
}

impl<'r> SaslReply<'r> {
    /// Reads the reply to a command.
    pub(crate) fn read(reply: &'r [u8]) -> Result<Self, Error> {
        check_ok(reply)?;
        Self::of(document(reply)?)
    }

    /// Reads the reply to a speculative authentication.
    pub(crate) fn of(reply: &'r RawDocument) -> Result<Self, Error> {
        Ok(Self {
            conversation: number(reply, "conversationId")
                .ok_or_else(|| malformed("conversationId"))?,
            payload: reply.get_binary("payload").map_err(|_| malformed("payload"))?.bytes,
            done: reply.get_bool("done").map_err(|_| malformed("done"))?,
        })
    }
}

/// Checks that the reply reports success. It is not enough that the reply contains no error.
pub(crate) fn check_ok(reply: &[u8]) -> Result<(), Error> {
    match number(document(reply)?, "ok") {
        Some(1) => Ok(()),
        _ => Err(malformed("ok")),
    }
}

/// Returns the server's part of a speculative authentication in the reply to hello.
pub(crate) fn speculative(hello: &[u8]) -> Result<Option<&RawDocument>, Error> {
    match field(document(hello)?, "speculativeAuthenticate") {
        None => Ok(None),
        Some(RawBsonRef::Document(reply)) => Ok(Some(reply)),
        Some(_) => Err(malformed("speculativeAuthenticate")),
    }
}

/// Returns whether the reply to hello lists `mechanism` for the user.
pub(crate) fn supports(hello: &[u8], mechanism: &str) -> Result<bool, Error> {
    // Authentication: "Drivers MUST NOT validate the contents of the saslSupportedMechs".
    let list = document(hello)?.get_array("saslSupportedMechs");
    Ok(list.is_ok_and(|list| {
        let mut items = list.into_iter();
        items.any(|item| item.is_ok_and(|item| item.as_str() == Some(mechanism)))
    }))
}

/// Returns the error for a reply in which `field` is malformed.
pub(crate) fn malformed(field: &str) -> Error {
    Error::auth(format!("the server's reply to the authentication is malformed at `{field}`"))
}

fn document(reply: &[u8]) -> Result<&RawDocument, Error> {
    RawDocument::from_bytes(reply).map_err(|_| malformed("document"))
}

fn field<'r>(document: &'r RawDocument, name: &str) -> Option<RawBsonRef<'r>> {
    document.get(name).ok().flatten()
}

fn number(document: &RawDocument, name: &str) -> Option<i64> {
    match field(document, name)? {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(1.0) | RawBsonRef::Boolean(true) => Some(1),
        _ => None,
    }
}
