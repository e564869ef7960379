//! The dialer: what a socket runtime implements to be a [`Transport`](crate::connect::Transport).

use std::{
    fmt,
    fmt::Debug,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use async_trait::async_trait;
use sdam_core::time::Instant;

use crate::stream::ByteStream;

/// Opens a socket to one address, and looks up host names.
///
/// [`NetTransport`](crate::net::NetTransport) makes a transport of it, which adds racing of several
/// addresses, timeouts and framing.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the futures by any executor on any thread.
/// - An address that refuses is an error at once, and one that is silent is pending, unless
///   [`blocks`](Self::blocks) says otherwise.
/// - A TCP socket sends without delay and probes an idle peer, as
///   [`system::tune_tcp`](crate::system::tune_tcp) sets it up.
///
/// Through the transport that is made of it, a dialer also keeps the contract of
/// [`Transport`](crate::connect::Transport): dropping a future abandons the attempt and closes its
/// socket, and a runtime that has ended causes an error and not a panic.
#[async_trait]
pub trait Dial: Send + Sync + Debug + 'static {
    /// An open socket.
    type Stream: ByteStream;

    /// Opens a socket to `target`.
    ///
    /// Only implementations that [block](Self::blocks) need the deadline; for all others the caller
    /// drops the future in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt.
    async fn dial(
        &self,
        target: &DialTarget,
        deadline: Option<Instant>,
    ) -> io::Result<Self::Stream>;

    /// Returns the addresses of `host`, most preferred first. Runtimes without a resolver use
    /// [`system::lookup_ip`](crate::system::lookup_ip).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the look-up.
    async fn lookup_ip(&self, host: &str) -> io::Result<Vec<IpAddr>>;

    /// Returns whether the futures block their thread instead of being pending.
    ///
    /// Blocking attempts cannot race, so each one's deadline is its share of the remaining time.
    fn blocks(&self) -> bool {
        false
    }
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialTarget {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix domain socket, by its path.
    Unix(PathBuf),
}

impl DialTarget {
    /// Returns the error of a runtime or system that has no sockets of this kind.
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
