//! Ports on loopback that are reserved for one owner.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, SockRef, Socket, Type};

use crate::error::Error;

/// The first port of the range. It is below the operating system's ephemeral ports; otherwise,
/// outgoing connections would take most of the ports.
const FIRST: u16 = 15_000;
const COUNT: u16 = 16_000;

/// A loopback port, for TCP and UDP, that refuses clients unless a server listens on it.
///
/// While the value exists, neither the system nor another [`reserve`](Self::reserve) in any process
/// assigns the port to someone else. A server can listen on it if it sets `SO_REUSEADDR`, as most
/// servers and `std::net::TcpListener` do, and can be restarted at any time. Systems other than
/// Linux do not let a server share a reserved port, so there the port is only free at first.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _reserved: Option<(Socket, UdpSocket)>,
}

impl Port {
    /// Reserves a port that is free.
    ///
    /// # Errors
    /// [`Error::State`] if there is none.
    pub fn reserve() -> Result<Self, Error> {
        // Processes that start at the same time begin with different ports, so that they do not try
        // the same ports one after the other.
        static NEXT: LazyLock<AtomicU32> =
            LazyLock::new(|| AtomicU32::new(RandomState::new().hash_one(()) as u32));
        (0..COUNT)
            .find_map(|_| {
                let step = NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT);
                Self::bind((Ipv4Addr::LOCALHOST, FIRST + step as u16).into()).ok()
            })
            .ok_or_else(|| Error::State("no free port on loopback".to_owned()))
    }

    /// Binds sockets on which nothing arrives: one does not listen, and the other one accepts
    /// packets only from itself.
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let tcp = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        tcp.bind(&address.into())?;
        let udp = UdpSocket::bind(address)?;
        udp.connect(address)?;
        // The address is shared only from here on, so that of two owners only one succeeds.
        tcp.set_reuse_address(true)?;
        SockRef::from(&udp).set_reuse_address(true)?;
        Ok(Self { address, _reserved: cfg!(target_os = "linux").then_some((tcp, udp)) })
    }

    /// Returns the address with the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
