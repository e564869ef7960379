//! Stages of a connection.

/// The stage that a connection to a server had reached when an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
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
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Stage {
    /// Returns whether the connection had not been established yet (SDAM: "before handshake
    /// completes"). The handshake comprises hello and authentication.
    #[doc(alias = "beforeHandshakeCompletes")]
    pub(crate) fn is_before_handshake_completes(self) -> bool {
        self < Self::Operation
    }

    /// Returns whether hello had not been answered yet. In that case, the server, or the service
    /// behind a load balancer, is unknown.
    pub fn is_before_hello_completes(self) -> bool {
        self <= Self::Hello
    }
}
