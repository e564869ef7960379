//! Checks of the dialer contract through a `NetTransport`.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::AsyncWriteExt as _;
use sdam_core::{address::ServerAddress, time::Instant};

use super::{
    Outcome, Run,
    connection::exchange,
    ensure,
    peer::{Blackhole, Peer, READ_TIMEOUT, Refusing, address_of, echo, vanish},
};
use sdam_transport::{
    clock::Clock,
    connect::{Connection, Transport},
    dial::{Dial, DialOptions, DialTarget},
    net::NetTransport,
    stream::ByteStream as _,
    system,
};

/// A dialer under test that resolves every host name to the same addresses.
#[derive(Debug)]
struct OneName<D> {
    dial: Arc<D>,
    addresses: Vec<SocketAddr>,
}

#[async_trait]
impl<D: Dial> Dial for OneName<D> {
    type Stream = D::Stream;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        self.dial.dial(target, options).await
    }

    async fn lookup_host(&self, _: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(self.addresses.clone())
    }

    fn blocks(&self) -> bool {
        self.dial.blocks()
    }
}

/// A dialer under test and its clock.
#[derive(Debug)]
pub(super) struct Dialer<D> {
    dial: Arc<D>,
    clock: Arc<dyn Clock>,
}

impl<D> Clone for Dialer<D> {
    fn clone(&self) -> Self {
        Self { dial: Arc::clone(&self.dial), clock: Arc::clone(&self.clock) }
    }
}

impl<D: Dial> Dialer<D> {
    pub(super) fn new(dial: D, clock: Arc<dyn Clock>) -> Self {
        Self { dial: Arc::new(dial), clock }
    }

    /// Connects to a host name that resolves to [`LOOPBACK`] and to the IP address of `other`, in
    /// this order. The second attempt begins `delay` after the first, or as soon as the first has
    /// failed. Exchanges a message with `listener`, which listens on `other`.
    async fn reach(
        &self,
        listener: TcpListener,
        other: SocketAddr,
        delay: Duration,
        run: &Run,
    ) -> Outcome {
        let peer = Peer::run(address_of(other), move || echo(&mut listener.accept()?.0));
        let mut connection = self.connect(&[LOOPBACK, other.ip()], other.port(), delay).await?;
        exchange(&mut *connection, 1, 0, run).await?;
        drop(connection);
        peer.sees_the_end(run).await.map(drop)
    }

    /// Returns the options for opening a socket.
    fn options(&self) -> DialOptions {
        let mut options = DialOptions::default();
        options.deadline = Some(deadline(&*self.clock));
        options
    }

    /// Connects to `port` on the first of `addresses` that answers.
    async fn connect(
        &self,
        addresses: &[IpAddr],
        port: u16,
        delay: Duration,
    ) -> Result<Box<dyn Connection>, String> {
        let addresses = addresses.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        let dial = OneName { dial: Arc::clone(&self.dial), addresses };
        let transport = NetTransport::new(dial, Arc::clone(&self.clock)).with_attempt_delay(delay);
        let target = ServerAddress::new("conformance.test", port);
        let deadline = deadline(&*self.clock);
        let connected = transport.connect(&target, Some(deadline)).await;
        let mut connection = connected.map_err(|error| format!("{error:#}"))?;
        connection.set_deadline(Some(deadline));
        Ok(connection)
    }
}

pub(super) async fn a_refusing_address_is_skipped<D: Dial>(dialer: Dialer<D>, run: Run) -> Outcome {
    let refusing = Refusing::start()?;
    let port = refusing.address.port().unwrap_or_default();
    let Some((listener, other)) = other_loopback(port) else {
        return Ok(());
    };
    run.step("connecting to two addresses, of which the first refuses");
    // The delay is so long that only the refusal starts the second attempt, even on a busy machine.
    dialer.reach(listener, other, Duration::from_secs(3600), &run).await
}

pub(super) async fn the_next_address_overtakes_a_silent_one<D: Dial>(
    dialer: Dialer<D>,
    run: Run,
) -> Outcome {
    let Some(blackhole) = run.on_own_thread(Blackhole::start).await?? else {
        return Ok(());
    };
    let port = blackhole.address.port().unwrap_or_default();
    let Some((listener, other)) = other_loopback(port) else {
        return Ok(());
    };
    run.step("connecting to two addresses, of which the first is silent");
    dialer.reach(listener, other, Duration::from_millis(10), &run).await
}

pub(super) async fn tcp_sockets_probe_an_idle_peer<D: Dial>(
    dialer: Dialer<D>,
    run: Run,
) -> Outcome {
    let failed = |error: io::Error| error.to_string();
    let (listener, timer) = control().map_err(failed)?;
    if timer.is_none() {
        return Ok(()); // The system does not show its timers.
    }
    let address = listener.local_addr().map_err(failed)?;
    run.step("connecting to a port that listens");
    let target = DialTarget::Tcp(address);
    let dialled = dialer.dial.dial(&target, dialer.options());
    let _socket = dialled.await.map_err(failed)?;
    let (_accepted, from) = listener.accept().map_err(failed)?;
    let timer = keep_alive_timer(from, address);
    let timer = timer.ok_or("the system runs no keep-alive timer for the socket")?;
    ensure!(timer <= Duration::from_secs(120), "the first probe is sent after {timer:?}");
    Ok(())
}

pub(super) async fn a_write_to_a_peer_that_vanished_ends<D: Dial>(
    dialer: Dialer<D>,
    run: Run,
) -> Outcome {
    let failed = |error: io::Error| error.to_string();
    let listener = TcpListener::bind((LOOPBACK, 0)).map_err(failed)?;
    let target = DialTarget::Tcp(listener.local_addr().map_err(failed)?);
    let user_timeout = Some(Duration::from_millis(100));
    run.step("connecting to a port that listens");
    let mut options = dialer.options();
    options.user_timeout = user_timeout;
    let dialled = dialer.dial.dial(&target, options);
    let mut stream = dialled.await.map_err(failed)?;
    let (peer, _) = listener.accept().map_err(failed)?;
    if !vanish(&peer).map_err(failed)? {
        return Ok(()); // The system does not let a peer vanish.
    }
    // With this deadline, a blocking write fails before the step counts as hanging.
    stream.set_deadline(Some(dialer.clock.now() + READ_TIMEOUT));
    run.step("writing to a peer that has vanished");
    let error = loop {
        if let Err(error) = stream.write_all(&[0; 8 << 10]).await {
            break error;
        }
    };
    let own = error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
    ensure!(!own, "only the deadline has ended the write");
    Ok(())
}

/// Returns a listener, and the keep-alive timer of a tuned socket that was connected to the
/// listener. The timer is `None` on systems that do not expose it; the check
/// [`tcp_sockets_probe_an_idle_peer`] then passes for every dialer.
pub(super) fn control() -> io::Result<(TcpListener, Option<Duration>)> {
    let listener = TcpListener::bind((LOOPBACK, 0))?;
    let address = listener.local_addr()?;
    let control = TcpStream::connect(address)?;
    system::tune_tcp(&control, None)?;
    let _accepted = listener.accept()?;
    let timer = keep_alive_timer(control.local_addr()?, address);
    Ok((listener, timer))
}

/// Returns the time until the next keep-alive probe of the TCP socket from `local` to `remote`, or
/// `None` if the system does not expose it.
///
/// Sockets to other peers may have the same local port, in particular those in `TIME_WAIT`.
fn keep_alive_timer(local: SocketAddr, remote: SocketAddr) -> Option<Duration> {
    (0..TABLE_READS).find_map(|_| {
        let sockets = fs::read_to_string("/proc/net/tcp").ok()?;
        listed_timer(&sockets, local, remote)
    })
}

/// Finds the timer of a socket in the text of `/proc/net/tcp`. Returns `None` if the socket is not
/// listed or has no probe timer.
fn listed_timer(sockets: &str, local: SocketAddr, remote: SocketAddr) -> Option<Duration> {
    let ends = [table_entry(local)?, table_entry(remote)?];
    let mut rows = sockets.lines().map(|line| line.split_whitespace());
    let mut row = rows.find(|row| row.clone().skip(1).take(2).eq(&ends))?;
    let (timer, left) = row.nth(5)?.split_once(':')?;
    let hundredths = u64::from_str_radix(left, 16).ok()?;
    (timer == KEEP_ALIVE).then(|| Duration::from_millis(hundredths * 10))
}

/// Formats an address as `/proc/net/tcp` does: its bytes are written as a number in native byte
/// order.
fn table_entry(address: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip() else {
        return None;
    };
    let number = u32::from_ne_bytes(ip.octets());
    Some(format!("{number:08X}:{:04X}", address.port()))
}

/// Opens a listener on a loopback address other than [`LOOPBACK`], if the system has one.
fn other_loopback(port: u16) -> Option<(TcpListener, SocketAddr)> {
    let others = [IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))];
    others.into_iter().find_map(|address| {
        let listener = TcpListener::bind((address, port)).ok()?;
        let address = listener.local_addr().ok()?;
        Some((listener, address))
    })
}

pub(super) async fn an_ipv6_address_keeps_its_zone<D: Dial>(
    dialer: Dialer<D>,
    run: Run,
) -> Outcome {
    run.step("looking up a link-local address of the first interface");
    let found = dialer.dial.lookup_host("fe80::1%1").await.map_err(|error| error.to_string())?;
    let zone = found.iter().find_map(|address| match address {
        SocketAddr::V6(address) => Some(address.scope_id()),
        SocketAddr::V4(_) => None,
    });
    ensure!(zone == Some(1), "the addresses of fe80::1%1 are {found:?}");
    Ok(())
}

/// Returns a deadline for connecting. A blocking dialer waits for an address that does not answer
/// until half of the time has passed.
fn deadline(clock: &dyn Clock) -> Instant {
    clock.now() + Duration::from_secs(4)
}

/// The number of the probe timer in `/proc/net/tcp`.
const KEEP_ALIVE: &str = "02";
/// The maximum number of times that the socket table is read. Several reads are needed because a
/// read may miss rows while the table changes.
const TABLE_READS: u32 = 5;
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn a_socket_to_another_peer_with_the_same_port_is_not_taken_for_it() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 0100007F:B2D4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0
   1: 0100007F:B2D4 0100007F:1F91 06 00000000:00000000 03:00000176 00000000     0
   2: 0100007F:B2D4 0100007F:1F90 01 00000000:00000000 02:00002EE0 00000000     0
   3: 0100007F:1F90 0100007F:B2D4 01 00000000:00000000 00:00000000 00000000     0
";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let probed = listed_timer(table, at(0xB2D4), at(0x1F90));
        assert_eq!(probed, Some(Duration::from_secs(120)));
        assert_eq!(listed_timer(table, at(0xB2D4), at(0x1F91)), None);
        assert_eq!(listed_timer(table, at(0x1F90), at(0xB2D4)), None);
        assert_eq!(listed_timer(table, at(0xB2D4), at(0x1F92)), None);
    }
}
