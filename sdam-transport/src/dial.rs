//! The dialer trait, from which a socket runtime builds its
//! [`Transport`](crate::connect::Transport).

use std::{fmt, fmt::Debug, io, net::SocketAddr, path::PathBuf, time::Duration};

use async_trait::async_trait;
use sdam_core::time::Instant;

use crate::stream::ByteStream;

/// Opens a socket to one address, and looks up host names.
///
/// [`NetTransport`](crate::net::NetTransport) turns a dialer into a transport, adding timeouts,
/// framing and the racing of addresses.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the futures by any executor on any thread.
/// - An address that refuses is an error at once, and one that is silent is pending, unless
///   [`blocks`](Self::blocks) says otherwise.
/// - An IPv6 address with a zone keeps the zone when it is looked up.
/// - A TCP socket sends without delay and probes an idle peer, as
///   [`system::tune_tcp`](crate::system::tune_tcp) sets it up.
/// - A TCP socket with a [user timeout](DialOptions::user_timeout) breaks once the peer has
///   acknowledged nothing for that time, where the system has that option.
///
/// A dialer in a `NetTransport` must also satisfy the contract of
/// [`Transport`](crate::connect::Transport): dropping a future abandons the attempt and closes its
/// socket, and a runtime that has ended causes an error, not a panic.
#[async_trait]
pub trait Dial: Send + Sync + Debug + 'static {
    /// An open socket.
    type Stream: ByteStream;

    /// Opens a socket to `target`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt.
    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream>;

    /// Returns the addresses of `host`, the most preferred one first, with any port. Runtimes
    /// without a resolver use [`system::lookup_host`](crate::system::lookup_host).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the look-up.
    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>>;

    /// Returns whether the futures block their thread instead of returning `Pending`.
    ///
    /// A blocking attempt cannot race others, so each attempt gets only a share of the remaining
    /// time.
    fn blocks(&self) -> bool {
        false
    }
}

/// The options for opening a socket. By default, no option is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DialOptions {
    /// The deadline of the attempt. Only [blocking](Dial::blocks) dialers need it. For other
    /// dialers, the caller drops the future at the deadline.
    pub deadline: Option<Instant>,
    /// The user timeout of a TCP socket, which [`system::tune_tcp`](crate::system::tune_tcp) sets.
    /// Dialers that cannot set it ignore this option.
    pub user_timeout: Option<Duration>,
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialTarget {
    /// A TCP port.
    Tcp(SocketAddr),
    /// The path of a Unix domain socket.
    Unix(PathBuf),
}

impl DialTarget {
    /// Returns the error for a runtime or a system that does not support sockets for this target.
    pub fn unsupported(&self) -> io::Error {
        let message = format!("no socket can be opened to {self}");
        io::Error::new(io::ErrorKind::Unsupported, message)
    }
}

impl fmt::Display for DialTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => fmt::Display::fmt(address, f),
            Self::Unix(path) => fmt::Display::fmt(&path.display(), f),
        }
    }
}
