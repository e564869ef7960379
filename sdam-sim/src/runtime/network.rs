//! The state of the network: reachability, latency, loss, limits on new connections, and the
//! traffic that an observer of the wire sees.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use sdam_core::{address::ServerAddress, rng::Rng, time::Instant};

use super::{
    dns::DnsState,
    proxy::{Message, Opening, ProxyFault, ProxyStates},
    socket::Socket,
    tls::{TlsState, is_header},
};
use crate::{ConnectionId, MemberId};

/// The latency of a network, and a flag that tells whether messages are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The minimum one-way latency.
    pub min: Duration,
    /// The maximum additional latency, uniformly distributed.
    pub spread: Duration,
    /// True if messages arrive in pieces.
    pub chunked: bool,
}

impl Latency {
    /// A local network: 0.1 to 0.3 ms one way.
    pub const LAN: Self = Self {
        min: Duration::from_micros(100),
        spread: Duration::from_micros(200),
        chunked: false,
    };
    /// A network between continents: 40 to 80 ms one way, with split messages.
    pub const WAN: Self =
        Self { min: Duration::from_millis(40), spread: Duration::from_millis(40), chunked: true };

    pub(super) fn draw(&self, rng: &mut Rng) -> Duration {
        let spread = u64::try_from(self.spread.as_nanos()).unwrap_or(u64::MAX);
        self.min + Duration::from_nanos(rng.below(spread.saturating_add(1)))
    }
}

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A frame that the program sends to a server.
    ToServer,
    /// A frame that a server sends to the program.
    ToClient,
}

/// Bytes in transit between the program and a server, as rules see them. If TLS is used, the bytes
/// are encrypted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Frame<'f> {
    /// The time at which the bytes were sent.
    pub at: Instant,
    /// The server that sends or receives the bytes.
    pub member: MemberId,
    /// The direction of the bytes.
    pub direction: Direction,
    /// The bytes: a message or TLS record, or a part of one.
    pub bytes: &'f [u8],
}

/// The decision of a rule on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The frame arrives normally.
    Pass,
    /// The frame and all later data on its connection are delayed by this much.
    Delay(Duration),
    /// The frame and all later data on its connection in this direction are lost.
    Cut,
    /// The frame's connection is reset.
    Reset,
}

/// A server's limit on new connections, as in MongoDB 8.2 and later
/// (`ingressConnectionEstablishmentRatePerSec`, `...BurstCapacitySecs`, `...MaxQueueDepth`).
///
/// If connections arrive faster than the rate, the server still accepts them, but reads nothing
/// from a connection until its turn comes. If too many connections are already waiting, a new one
/// is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialLimit {
    /// The number of connections that are served per second.
    pub rate: u32,
    /// The number of connections that are served at once after a quiet period.
    pub burst: u32,
    /// The maximum number of connections that wait.
    pub queue: u32,
}

/// Statistics about the program's traffic, as seen by an observer of the wire.
///
/// ```
/// use sdam_core::address::ServerAddress;
/// use sdam_sim::{Blueprint, runtime::Sim};
///
/// let sim = Sim::new(42, &Blueprint::standalone());
/// // The program runs, with TLS and through a proxy.
/// let traffic = sim.network().traffic();
/// assert_eq!((traffic.plain_text, traffic.direct), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The number of attempts to connect to a server directly instead of through a proxy.
    pub direct: u64,
    /// The number of connections that a server closed because of its limit.
    pub refused: u64,
    /// The number of connections that a server delayed because of its limit.
    pub delayed: u64,
    /// The number of connection attempts to proxies.
    pub proxied: u64,
    /// The number of connections on which the program began with a TLS record. A SOCKS5 handshake
    /// that precedes the record does not count.
    pub encrypted: u64,
    /// The number of connections on which the program sent plain text, which means bytes that are
    /// not TLS records. A SOCKS5 handshake does not count.
    pub plain_text: u64,
}

/// The network faults of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortState {
    pub(super) refuse: bool,
    pub(super) blackhole: bool,
    pub(super) reset_after: Option<usize>,
}

type Rule = Box<dyn FnMut(&Frame<'_>) -> Verdict + Send>;

pub(super) struct NetworkState {
    pub(super) latency: Latency,
    pub(super) dns: DnsState,
    pub(super) tls: TlsState,
    pub(super) proxies: ProxyStates,
    pub(super) traffic: Traffic,
    ports: BTreeMap<MemberId, PortState>,
    pub(super) limit: Option<DialLimit>,
    pub(super) limiters: BTreeMap<MemberId, Limiter>,
    /// The addresses of the port forwarders, each with the server to which it forwards.
    pub(super) forwarders: BTreeMap<ServerAddress, MemberId>,
    pub(super) sockets: BTreeMap<u64, Socket>,
    pub(super) by_connection: BTreeMap<ConnectionId, u64>,
    hosts: Vec<Box<str>>,
    pub(super) rules: Vec<Rule>,
    pub(super) rng: Rng,
    last_socket: u64,
}

impl NetworkState {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            latency: Latency::LAN,
            dns: DnsState::default(),
            tls: TlsState::default(),
            proxies: ProxyStates::new(),
            traffic: Traffic::default(),
            ports: BTreeMap::new(),
            limit: None,
            limiters: BTreeMap::new(),
            forwarders: BTreeMap::new(),
            sockets: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            hosts: Vec::new(),
            rules: Vec::new(),
            rng,
            last_socket: 0,
        }
    }

    pub(super) fn port(&self, member: MemberId) -> PortState {
        self.ports.get(&member).copied().unwrap_or_default()
    }

    /// Returns the time at which the member begins to read from a new connection, or `None` if it
    /// closes the connection immediately.
    pub(super) fn admit(&mut self, now: Instant, member: MemberId) -> Option<Instant> {
        let Some(limit) = self.limit else {
            return Some(now);
        };
        let limiter = self.limiters.entry(member).or_insert_with(|| Limiter::new(limit));
        limiter.admit(now)
    }

    pub(super) fn port_mut(&mut self, member: MemberId) -> &mut PortState {
        self.ports.entry(member).or_default()
    }

    pub(super) fn heal(&mut self) {
        self.ports.clear();
        self.rules.clear();
        self.dns.heal();
        self.tls.heal();
        let proxies = self.proxies.values_mut();
        proxies.for_each(|proxy| proxy.fault = None);
        self.latency = Latency::LAN;
    }

    /// Returns the IP address of a host. Assigns an address when the host is first used.
    pub(super) fn ip_of(&mut self, host: &str) -> IpAddr {
        let known = self.hosts.iter().position(|own| &**own == host);
        let index = known.unwrap_or_else(|| {
            self.hosts.push(host.into());
            self.hosts.len() - 1
        });
        let [_, _, high, low] = u32::try_from(index + 1).unwrap_or(u32::MAX).to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
    }

    /// Returns the host that has this IP address.
    pub(super) fn host_at(&self, ip: IpAddr) -> Option<&str> {
        let IpAddr::V4(ip) = ip else { return None };
        let [_, _, high, low] = ip.octets();
        let index = usize::from(u16::from_be_bytes([high, low])).checked_sub(1)?;
        self.hosts.get(index).map(|host| &**host)
    }

    /// Adds a connection, through `proxy` if there is one. Without a proxy, the caller must `link`
    /// the connection to a server before use.
    pub(super) fn add_socket(&mut self, now: Instant, proxy: Option<ServerAddress>) -> u64 {
        self.last_socket += 1;
        let socket = Socket::new(now, proxy);
        self.sockets.insert(self.last_socket, socket);
        self.last_socket
    }

    /// Connects the socket to a server.
    pub(super) fn link(&mut self, id: u64, server: ConnectionId) {
        let reset_after = self.port(server.member).reset_after;
        if let Some(socket) = self.sockets.get_mut(&id) {
            (socket.server, socket.reset_after) = (Some(server), reset_after);
            self.by_connection.insert(server, id);
        }
    }

    pub(super) fn remove_socket(&mut self, id: u64) -> Option<Socket> {
        let removed = self.sockets.remove(&id)?;
        if let Some(server) = removed.server {
            self.by_connection.remove(&server);
        }
        Some(removed)
    }

    /// Splits `bytes` at random positions.
    pub(super) fn chunks(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = (self.rng.below(rest.len() as u64) + 1) as usize;
            let (chunk, tail) = rest.split_at(length.max(rest.len() / 4).min(rest.len()));
            chunks.push(chunk.to_vec());
            rest = tail;
        }
        chunks
    }

    /// Decides whether bytes sent on `id` arrive, and when.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        id: u64,
        direction: Direction,
        bytes: &[u8],
    ) -> Transmission {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return Transmission::Lost;
        };
        let side = direction as usize;
        let member = socket.server.map(|server| server.member);
        let port = member.and_then(|member| self.ports.get(&member));
        let port = port.copied().unwrap_or_default();
        let stalled = socket.proxy.as_ref().is_some_and(|(address, _)| {
            let proxy = self.proxies.get(address);
            proxy.is_some_and(|proxy| proxy.fault == Some(ProxyFault::Stall))
        });
        // Rules do not apply to messages between the program and a proxy.
        let verdict = member.and_then(|member| {
            let frame = Frame { at: now, member, direction, bytes };
            let mut verdicts = self.rules.iter_mut().map(|rule| rule(&frame));
            verdicts.find(|verdict| *verdict != Verdict::Pass)
        });
        let delay = match verdict.unwrap_or(Verdict::Pass) {
            Verdict::Reset => return Transmission::Reset,
            Verdict::Cut => {
                socket.cut[side] = true;
                Duration::ZERO
            }
            Verdict::Delay(delay) => delay,
            Verdict::Pass => Duration::ZERO,
        };
        socket.cut[side] |= port.blackhole || stalled;
        if socket.cut[side] {
            return Transmission::Lost;
        }
        if direction == Direction::ToClient
            && let Some(left) = &mut socket.reset_after
        {
            if *left < bytes.len() {
                return Transmission::Reset;
            }
            *left -= bytes.len();
        }
        let arrival = now + self.latency.draw(&mut self.rng) + delay;
        socket.last_arrival[side] = socket.last_arrival[side].max(arrival);
        Transmission::Arrives(socket.last_arrival[side])
    }
}

/// The result of sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transmission {
    Arrives(Instant),
    Lost,
    Reset,
}

/// The state of a server's limit on new connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limiter {
    limit: DialLimit,
    /// The time at which the next connection is served if the burst is used up.
    turn: Instant,
}

impl Limiter {
    pub(super) fn new(limit: DialLimit) -> Self {
        Self { limit, turn: Instant::EPOCH }
    }

    /// Returns the time at which the server begins to read from a connection that arrives now, or
    /// `None` if the server closes the connection.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Instant> {
        let interval = Duration::from_secs(1) / self.limit.rate.max(1);
        let turn = self.turn.max(now - interval * self.limit.burst);
        if turn.since(now) > interval * self.limit.queue {
            return None;
        }
        self.turn = turn + interval;
        Some(turn.max(now))
    }
}

/// Parses the bytes that the program sends on one connection.
#[derive(Debug)]
pub(super) enum Tap {
    /// The SOCKS5 handshake comes next.
    Opening(Opening),
    /// A TLS record, or the rest of its header, comes next.
    Header {
        bytes: Vec<u8>,
        first: bool,
    },
    /// This many bytes of a record's payload come next.
    Payload(usize),
    PlainText,
}

impl Tap {
    /// Creates the parser for a new connection to a proxy or a server.
    pub(super) fn new(to_proxy: bool) -> Self {
        if to_proxy { Self::Opening(Opening::default()) } else { Self::records(true) }
    }

    fn records(first: bool) -> Self {
        Self::Header { bytes: Vec::new(), first }
    }

    /// Parses sent bytes and counts them.
    pub(super) fn read(&mut self, mut bytes: &[u8], traffic: &mut Traffic) {
        while let Some((next, rest)) = bytes.split_first() {
            match self {
                Self::Opening(opening) => {
                    opening.push(&[*next]);
                    match opening.next() {
                        Ok(Some(Message::Request(_))) => *self = Self::records(true),
                        Ok(_) => {}
                        Err(_) => self.found_plain_text(traffic),
                    }
                    bytes = rest;
                }
                Self::Header { bytes: header, first } => {
                    header.push(*next);
                    bytes = rest;
                    if !is_header(header) {
                        self.found_plain_text(traffic);
                    } else if let [.., high, low] = header[..]
                        && header.len() == 5
                    {
                        traffic.encrypted += u64::from(*first);
                        *self = Self::Payload(usize::from(u16::from_be_bytes([high, low])));
                        self.skip(0);
                    }
                }
                Self::Payload(left) => {
                    let length = bytes.len().min(*left);
                    bytes = &bytes[length..];
                    self.skip(length);
                }
                Self::PlainText => return,
            }
        }
    }

    /// Skips `length` bytes of the payload.
    fn skip(&mut self, length: usize) {
        if let Self::Payload(left) = self {
            *left -= length;
            if *left == 0 {
                *self = Self::records(false);
            }
        }
    }

    fn found_plain_text(&mut self, traffic: &mut Traffic) {
        traffic.plain_text += 1;
        *self = Self::PlainText;
    }
}

sdam_core::opaque!(NetworkState, |this|
    latency: this.latency,
    ports: this.ports,
    sockets: this.sockets
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `sent` at once and byte by byte, and checks the numbers of encrypted and plain
    /// connections.
    #[track_caller]
    fn check(to_proxy: bool, sent: &[u8], encrypted: u64, plain_text: u64) {
        for size in [1, sent.len()] {
            let (mut tap, mut traffic) = (Tap::new(to_proxy), Traffic::default());
            sent.chunks(size).for_each(|bytes| tap.read(bytes, &mut traffic));
            assert_eq!(
                (traffic.encrypted, traffic.plain_text),
                (encrypted, plain_text),
                "{sent:?}"
            );
        }
    }

    /// The first bytes of a hello to a server.
    const MESSAGE: [u8; 16] = [0x2d, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0];
    /// Two TLS 1.3 records. The first has version 1.0, and the second is empty.
    const RECORDS: [u8; 12] = [22, 3, 1, 0, 2, 0xdd, 7, 23, 3, 3, 0, 0];
    /// A greeting without authentication and a request for `a:27017`.
    const OPENING: [u8; 11] = [5, 1, 0, 5, 1, 0, 3, 1, b'a', 0x69, 0x89];
    /// A greeting, a login and a request for `127.0.0.1:27017`.
    const LOGIN: [u8; 19] = [5, 2, 0, 2, 1, 1, b'u', 1, b'p', 5, 1, 0, 1, 127, 0, 0, 1, 0x69, 0x89];

    #[test]
    fn records_are_encrypted_and_everything_else_is_plain_text() {
        check(false, &RECORDS, 1, 0);
        check(false, &MESSAGE, 0, 1);
        check(false, &[&RECORDS[..], &MESSAGE].concat(), 1, 1);
        check(false, &OPENING, 0, 1);
    }

    #[test]
    fn a_proxy_reads_its_messages_and_nothing_else_before_the_records() {
        for opening in [&OPENING[..], &LOGIN] {
            check(true, &[opening, &RECORDS].concat(), 1, 0);
            check(true, &[opening, &MESSAGE].concat(), 0, 1);
        }
        check(true, &RECORDS, 0, 1);
        check(true, &MESSAGE, 0, 1);
    }
}
