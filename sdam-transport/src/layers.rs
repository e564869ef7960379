//! The layers between a server's address and the messages of a connection.

use std::{fmt::Debug, sync::Arc, time::Duration};

use sdam_core::{address::ServerAddress, options::ProxyOptions};

use crate::tls::Tls;

/// The socket options, and the layers between a transport's sockets and its messages. By default,
/// none are set.
///
/// A topology creates them from its options, and adds them with
/// [`Transport::with_layers`](crate::connect::Transport::with_layers).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Layers {
    /// Translates the addresses of servers.
    pub translate: Option<Arc<dyn Translate>>,
    /// The proxy through which connections are opened.
    pub proxy: Option<ProxyOptions>,
    /// Encrypts connections and checks the servers' certificates.
    pub tls: Option<Arc<dyn Tls>>,
    /// The user timeout of TCP sockets, see [`Options::tcp_user_timeout`].
    ///
    /// [`Options::tcp_user_timeout`]: sdam_core::options::Options::tcp_user_timeout
    pub user_timeout: Option<Duration>,
}

/// The steps that a transport performs itself, without a layer of this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guards {
    /// The transport negotiates TLS on every connection, with its own options. A topology then
    /// refuses to start if a TLS option other than `tls=true` is set, because it would be ignored.
    pub tls: bool,
    /// The transport opens every connection through the proxy.
    pub proxy: bool,
}

impl Guards {
    /// The value for a transport that connects directly and in plain text.
    pub const NONE: Self = Self { tls: false, proxy: false };

    /// Adds TLS to the steps that the transport performs itself.
    #[must_use]
    pub const fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Adds the proxy to the steps that the transport performs itself.
    #[must_use]
    pub const fn with_proxy(mut self) -> Self {
        self.proxy = true;
        self
    }
}

/// Translates the addresses of members that cannot be reached by their names, such as members of a
/// deployment inside Kubernetes or behind a tunnel.
///
/// The member keeps its name in descriptions and events, and TLS checks that name.
///
/// # Contract
///
/// - The caller holds no lock, and may call from any thread, for several members at once.
/// - `translate` returns immediately, because it is called for each connection attempt.
/// - Equal members are always translated to addresses of the same server.
pub trait Translate: Send + Sync + Debug + 'static {
    /// Returns the address to dial for `member`. Returns `member` itself if it can be dialled
    /// directly.
    fn translate(&self, member: &ServerAddress) -> ServerAddress;
}
