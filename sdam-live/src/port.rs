//! Free ports on loopback.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use crate::error::Error;

/// The range is below the ephemeral ports of operating systems: an outgoing connection could
/// otherwise take the port of a server that is down for a while.
const FIRST: u16 = 15_000;
const COUNT: u16 = 16_000;

/// Returns a loopback address at which nothing listens, neither over TCP nor over UDP.
///
/// Another process may take it before the server does; the server then exits with
/// [`ADDRESS_IN_USE`].
pub(crate) fn free() -> Result<SocketAddr, Error> {
    // Processes that start at the same time begin at different ports.
    let begin = (RandomState::new().hash_one(()) % u64::from(COUNT)) as u16;
    (0..COUNT)
        .map(|step| {
            let port = FIRST + (u32::from(begin) + u32::from(step)) as u16 % COUNT;
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        })
        .find(|address| TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok())
        .ok_or_else(|| Error::State("no free port on loopback".to_owned()))
}

/// The exit code of a `mongod` that cannot listen on its address.
pub(crate) const ADDRESS_IN_USE: i32 = 48;
