//! Stages of a connection.

use core::fmt;

/// The stage of a connection to a server when an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Stage {
    /// Waiting for a connection from the pool.
    CheckOut,
    /// Looking up the host name.
    Dns,
    /// Opening the connection.
    Connect,
    /// Reaching a proxy, or asking it for the connection.
    Proxy,
    /// Negotiating TLS.
    Tls,
    /// Sending hello or reading its reply.
    Hello,
    /// Authenticating.
    Auth,
    /// Running an operation on an established connection.
    Operation,
}

impl Stage {
    /// Every stage, in chronological order.
    pub const ALL: &'static [Self] = &[
        Self::CheckOut,
        Self::Dns,
        Self::Connect,
        Self::Proxy,
        Self::Tls,
        Self::Hello,
        Self::Auth,
        Self::Operation,
    ];

    /// Returns whether the connection was not established yet (SDAM: "before handshake completes").
    /// The handshake comprises hello and authentication.
    #[doc(alias = "beforeHandshakeCompletes")]
    pub fn is_before_handshake_completes(self) -> bool {
        self < Self::Operation
    }

    /// Returns whether hello was not answered yet, so that the server, or the service behind a load
    /// balancer, is unknown.
    pub fn is_before_hello_completes(self) -> bool {
        self <= Self::Hello
    }

    /// Returns one lower-case word, for counters and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CheckOut => "check_out",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
            Self::Hello => "hello",
            Self::Auth => "auth",
            Self::Operation => "operation",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
