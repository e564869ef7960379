//! The options of the handshake: its framing and the declared API version.

use alloc::boxed::Box;

/// The framing of the first hello of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HandshakeOpcode {
    /// OP_MSG, which every server since MongoDB 3.6 supports.
    #[default]
    OpMsg,
    /// OP_QUERY, for older servers.
    OpQuery,
}

/// The stable API version that is declared with every command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerApi {
    /// The version; only `1` exists.
    pub version: Box<str>,
    /// True if the server rejects commands outside the API.
    pub strict: Option<bool>,
    /// True if the server rejects deprecated commands.
    pub deprecation_errors: Option<bool>,
}

impl ServerApi {
    /// Returns version 1 of the API, without setting `strict` or `deprecation_errors`.
    pub fn v1() -> Self {
        Self { version: "1".into(), strict: None, deprecation_errors: None }
    }
}
