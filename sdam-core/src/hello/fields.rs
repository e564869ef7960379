//! Driver-specific fields of a handshake.

use alloc::{borrow::ToOwned as _, sync::Arc, vec::Vec};

use super::auth::{SASL_SUPPORTED_MECHS, SPECULATIVE_AUTHENTICATE};
use crate::{
    document::{DocumentWriter, Fields},
    options::ConfigError,
};

/// The fields that the client itself sets in at least one form of hello.
const OWN: [&str; 14] = [
    "hello",
    "isMaster",
    "helloOk",
    "topologyVersion",
    "maxAwaitTimeMS",
    "client",
    "backpressure",
    "loadBalanced",
    SASL_SUPPORTED_MECHS,
    SPECULATIVE_AUTHENTICATE,
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "$db",
];

/// The fields that a driver adds to the handshakes of its pooled connections, such as
/// `compression`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloFields(Arc<[u8]>);

impl HelloFields {
    /// Creates the fields from `document`, in BSON.
    ///
    /// # Errors
    ///
    /// If `document` is malformed, or contains a field that a handshake sets itself.
    pub fn new(document: &[u8]) -> Result<Self, ConfigError> {
        let refused = |value: &str, reason, remedy| {
            Err(ConfigError::new("hello", value.to_owned(), reason, remedy))
        };
        let read = Fields::of(document).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let Ok(fields) = read else {
            return refused("", "the fields are not a BSON document", "encode them as BSON");
        };
        match fields.iter().map(|field| field.key()).find(|key| OWN.contains(key)) {
            Some(key) => refused(key, "the handshake sets this field itself", "leave it out"),
            None => Ok(Self(document.into())),
        }
    }

    /// Adds the fields to a hello.
    pub(super) fn write(&self, command: &mut DocumentWriter) {
        // The fields were checked on creation, so this cannot fail.
        let _ = command.fields(&self.0);
    }
}
