//! Free ports on loopback.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;

/// The first port of the range. It is below the operating system's ephemeral ports; otherwise, an
/// outgoing connection could take the port of a server that is temporarily down.
const FIRST: u16 = 15_000;
const COUNT: u16 = 16_000;

/// Returns a free loopback address, for both TCP and UDP.
///
/// Another process may take the address before the server does. In that case, the server exits with
/// [`ADDRESS_IN_USE`].
pub(crate) fn free() -> Result<SocketAddr, Error> {
    // Processes that start at the same time begin with different ports. The counter gives different
    // ports to servers that the same process starts concurrently.
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(RandomState::new().hash_one(()) as u32));
    (0..COUNT)
        .map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT);
            let port = FIRST + step as u16;
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        })
        .find(|address| TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok())
        .ok_or_else(|| Error::State("no free port on loopback".to_owned()))
}

/// The exit code of a `mongod` that cannot listen on its address.
pub(crate) const ADDRESS_IN_USE: i32 = 48;

/// The message that a `mongod` logs before it aborts because another process listens on the address
/// that both have bound.
pub(crate) const CANNOT_LISTEN: &str = "Error listening for new connections on";
