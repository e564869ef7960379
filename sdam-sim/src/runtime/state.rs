//! The mutable state of the simulation: time, timers, deliveries in transit, the deployment.

use std::{collections::BTreeMap, task::Waker, time::Duration};

use sdam_core::{
    address::ServerAddress,
    rng::Rng,
    time::{Instant, UnixTime},
};

use super::{
    dns::DnsFault,
    network::{Direction, NetworkState, Transmission},
    proxy::ProxyFault,
    socket::{End, Link, Socket},
    trace::Trace,
};
use crate::{Action, ConnectionId, Deployment, MemberId, Output, Outputs, action::ActionError};

#[derive(Debug)]
pub(crate) struct SimState {
    now: Instant,
    /// The end of the stall of the program's host.
    stalled: Option<Instant>,
    pub(super) deployment: Deployment,
    pub(super) network: NetworkState,
    pub(super) trace: Trace,
    timers: BTreeMap<(Instant, u64), Waker>,
    deliveries: BTreeMap<(Instant, u64), Delivery>,
    last_number: u64,
    /// The mongos that the load balancer uses for the next connection.
    next_mongos: u16,
}

/// A network event in transit, with the id of its socket.
#[derive(Debug)]
enum Delivery {
    ToServer { id: u64, bytes: Vec<u8> },
    ToClient { id: u64, bytes: Vec<u8> },
    ClosedByServer { id: u64 },
    ClosedByClient { connection: ConnectionId },
}

/// The result of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectAttempt {
    Open(u64),
    Refused,
    /// There is no reply.
    Silent,
}

/// The result of reaching an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Server(Link),
    /// The server refuses the connection, or its process is not running.
    Refusal,
    /// There is no reply.
    Silence,
    /// There is no server at the address.
    Nowhere,
}

impl SimState {
    pub(super) fn new(deployment: Deployment, rng: Rng) -> Self {
        Self {
            now: Instant::EPOCH,
            stalled: None,
            deployment,
            network: NetworkState::new(rng),
            trace: Trace::default(),
            timers: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            last_number: 0,
            next_mongos: 0,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Returns the wall clock time, which is the same for all servers.
    pub(super) fn wall(&self) -> UnixTime {
        let millis = self.deployment.date();
        UnixTime::from_millis(u64::try_from(millis).unwrap_or_default())
    }

    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Sets or renews a timer. Returns its id.
    pub(super) fn set_timer(&mut self, at: Instant, timer: Option<u64>, waker: &Waker) -> u64 {
        let number = timer.unwrap_or_else(|| self.next_number());
        self.timers.insert((at, number), waker.clone());
        number
    }

    pub(super) fn cancel_timer(&mut self, at: Instant, timer: u64) {
        self.timers.remove(&(at, timer));
    }

    /// Advances time to the next event and returns the wakers that it triggers; `None` if there is
    /// no next event.
    pub(super) fn advance(&mut self) -> Option<Vec<Waker>> {
        let next = [
            self.timers.first_key_value().map(|((at, _), _)| *at),
            self.deliveries.first_key_value().map(|((at, _), _)| *at),
            self.deployment.next_deadline(),
            self.stalled.filter(|_| self.is_stalled()),
        ];
        let next = next.into_iter().flatten().min()?;
        // A deployment without clients always has timers, which must not hide a deadlock.
        if !self.is_stalled()
            && self.timers.is_empty()
            && self.deliveries.is_empty()
            && self.network.sockets.is_empty()
        {
            return None;
        }
        self.now = self.now.max(next);
        self.trace.time(self.now);
        let mut wakers = Vec::new();
        let outputs = self.deployment.advance(self.now);
        self.perform(outputs, &mut wakers);
        while let Some(entry) = self.deliveries.first_entry()
            && entry.key().0 <= self.now
        {
            let delivery = entry.remove();
            self.deliver(delivery, &mut wakers);
        }
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= self.now
        {
            wakers.push(entry.remove());
        }
        Some(wakers)
    }

    pub(super) fn stall(&mut self, duration: Duration) {
        self.stalled = self.stalled.max(Some(self.now + duration));
    }

    /// Returns whether the program's tasks are stopped.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.is_some_and(|end| self.now < end)
    }

    pub(super) fn apply(&mut self, action: &Action) -> Result<Vec<Waker>, ActionError> {
        let outputs = self.deployment.apply(self.now, action)?;
        let mut wakers = Vec::new();
        self.perform(outputs, &mut wakers);
        self.resume_handshakes(&mut wakers);
        Ok(wakers)
    }

    pub(super) fn set_dns_fault(&mut self, name: Option<&str>, fault: Option<DnsFault>) {
        self.network.dns.set_fault(self.now, name, fault);
    }

    /// Handles the arrival of a connection request at `address`.
    pub(super) fn accept(&mut self, address: &ServerAddress) -> ConnectAttempt {
        if let Some(proxy) = self.network.proxies.get(address) {
            self.network.traffic.proxied += 1;
            return if proxy.fault == Some(ProxyFault::Down) {
                ConnectAttempt::Refused
            } else {
                let proxy = Some(address.clone());
                ConnectAttempt::Open(self.network.add_socket(self.now, proxy))
            };
        }
        match self.reach(address) {
            Reached::Nowhere => ConnectAttempt::Refused,
            reached => {
                self.network.traffic.direct += 1;
                match reached {
                    Reached::Server(server) => {
                        let id = self.network.add_socket(self.now, None);
                        self.network.link(id, server);
                        ConnectAttempt::Open(id)
                    }
                    Reached::Silence => ConnectAttempt::Silent,
                    Reached::Nowhere | Reached::Refusal => ConnectAttempt::Refused,
                }
            }
        }
    }

    /// Opens a connection to the server at `address`, for the program or a proxy.
    pub(super) fn reach(&mut self, address: &ServerAddress) -> Reached {
        let Some(member) = self.member_at(address) else {
            return Reached::Nowhere;
        };
        let port = self.network.port(member);
        if port.blackhole || self.is_cut_off(member) {
            return Reached::Silence;
        }
        if port.refuse {
            return Reached::Refusal;
        }
        let opened = self.deployment.open(member);
        opened.map_or(Reached::Refusal, |connection| Reached::Server(Link { member, connection }))
    }

    /// Returns whether the program gets no reply from `address`.
    pub(super) fn is_silent(&self, address: &ServerAddress) -> bool {
        let forwarded = self.network.forwarders.get(address).copied();
        forwarded
            .or_else(|| self.deployment.member_at(address))
            .is_some_and(|member| self.network.port(member).blackhole || self.is_cut_off(member))
    }

    fn is_cut_off(&self, member: MemberId) -> bool {
        let status = self.deployment.status();
        let own = status.members.iter().find(|own| own.id == member);
        own.is_some_and(|own| own.running && !own.answers)
    }

    /// Returns the member at `address`, directly or behind a port forwarder. Behind a load
    /// balancer, mongoses share an address and take turns.
    fn member_at(&mut self, address: &ServerAddress) -> Option<MemberId> {
        if let Some(member) = self.network.forwarders.get(address) {
            return Some(*member);
        }
        let members = self.deployment.members_at(address);
        self.next_mongos = self.next_mongos.wrapping_add(1);
        members.get(usize::from(self.next_mongos) % members.len().max(1)).copied()
    }

    /// Sends the program's bytes.
    pub(super) fn send(&mut self, id: u64, bytes: &[u8]) -> Vec<Waker> {
        let network = &mut self.network;
        if let Some(socket) = network.sockets.get_mut(&id) {
            socket.tap.read(bytes, &mut network.traffic);
        }
        let mut wakers = Vec::new();
        self.transmit(id, Direction::ToServer, bytes, &mut wakers);
        wakers
    }

    /// Sends bytes over the network, in one or more pieces.
    pub(super) fn transmit(
        &mut self,
        id: u64,
        direction: Direction,
        bytes: &[u8],
        wakers: &mut Vec<Waker>,
    ) {
        for bytes in self.network.chunks(bytes) {
            let transmission = self.network.transmit(self.now, id, direction, &bytes);
            match (transmission, direction) {
                (Transmission::Lost, _) => {}
                (Transmission::Reset, _) => self.reset_socket(id, wakers),
                (Transmission::Arrives(at), Direction::ToServer) => {
                    self.deliver_at(at, Delivery::ToServer { id, bytes });
                }
                (Transmission::Arrives(at), Direction::ToClient) => {
                    self.deliver_at(at, Delivery::ToClient { id, bytes });
                }
            }
        }
    }

    /// Closes the connection at the server's or the proxy's end.
    pub(super) fn close_for_client(&mut self, id: u64) {
        let now = self.now;
        let transmission = self.network.transmit(now, id, Direction::ToClient, &[]);
        if let Transmission::Arrives(at) = transmission {
            self.deliver_at(at, Delivery::ClosedByServer { id });
        }
    }

    /// Closes the program's end.
    pub(super) fn close_socket(&mut self, id: u64) {
        let Some(socket) = self.network.remove_socket(id) else {
            return;
        };
        let at = self.now + self.network.latency.draw(&mut self.network.rng);
        let at = at.max(socket.last_arrival[Direction::ToServer as usize]);
        if let Some(Link { connection, .. }) = socket.server {
            self.deliver_at(at, Delivery::ClosedByClient { connection });
        }
    }

    /// Resets every connection to `member`.
    pub(super) fn reset(&mut self, member: MemberId) -> Vec<Waker> {
        self.reset_sockets(|socket| socket.leads_to(member))
    }

    /// Resets every connection through the proxy at `address`.
    pub(super) fn reset_proxy(&mut self, address: &ServerAddress) -> Vec<Waker> {
        self.reset_sockets(|socket| socket.goes_through(address))
    }

    /// Sets the fault of a proxy.
    pub(super) fn set_proxy_fault(
        &mut self,
        address: &ServerAddress,
        fault: Option<ProxyFault>,
    ) -> Vec<Waker> {
        if let Some(proxy) = self.network.proxies.get_mut(address) {
            proxy.fault = fault;
        }
        match fault {
            Some(ProxyFault::Down) => self.reset_proxy(address),
            _ => Vec::new(),
        }
    }

    fn reset_sockets(&mut self, which: impl Fn(&Socket) -> bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let sockets = self.network.sockets.iter();
        let sockets = sockets.filter_map(|(id, socket)| which(socket).then_some(*id));
        for id in sockets.collect::<Vec<u64>>() {
            self.reset_socket(id, &mut wakers);
        }
        wakers
    }

    fn reset_socket(&mut self, id: u64, wakers: &mut Vec<Waker>) {
        if let Some(socket) = self.network.sockets.get_mut(&id) {
            socket.end = Some(End::Reset);
            socket.cut = [true; 2];
            wakers.extend(socket.reader.take());
            if let Some(server) = socket.server {
                self.deployment.closed(server.connection);
            }
        }
    }

    fn deliver(&mut self, delivery: Delivery, wakers: &mut Vec<Waker>) {
        match delivery {
            Delivery::ToServer { id, bytes } => {
                if self.network.sockets.contains_key(&id) {
                    self.trace.delivery(id, bytes.len());
                    self.arrive(id, &bytes, wakers);
                }
            }
            Delivery::ToClient { id, bytes } => {
                self.trace.delivery(id, bytes.len());
                if let Some(socket) = self.network.sockets.get_mut(&id) {
                    socket.inbox.extend(bytes);
                    wakers.extend(socket.reader.take());
                }
            }
            Delivery::ClosedByServer { id } => {
                if let Some(socket) = self.network.sockets.get_mut(&id) {
                    socket.end.get_or_insert(End::Closed);
                    wakers.extend(socket.reader.take());
                }
            }
            Delivery::ClosedByClient { connection } => self.deployment.closed(connection),
        }
    }

    /// Performs the outputs of the deployment.
    pub(super) fn perform(&mut self, outputs: Outputs, wakers: &mut Vec<Waker>) {
        for output in outputs {
            match output {
                Output::Send { connection, bytes } => {
                    let Some(id) = self.network.by_connection.get(&connection).copied() else {
                        continue;
                    };
                    self.trace.message(&bytes);
                    let sealed = match self.network.sockets.get_mut(&id) {
                        Some(socket) => socket.tls.seal(bytes),
                        None => bytes,
                    };
                    self.transmit(id, Direction::ToClient, &sealed, wakers);
                }
                Output::Close { connection } => {
                    if let Some(id) = self.network.by_connection.get(&connection).copied() {
                        self.close_for_client(id);
                    }
                }
                Output::Down { .. } | Output::Up { .. } => {}
            }
        }
    }

    fn deliver_at(&mut self, at: Instant, delivery: Delivery) {
        let number = self.next_number();
        self.deliveries.insert((at, number), delivery);
    }

    /// Returns a random one-way latency.
    pub(super) fn one_way(&mut self) -> Duration {
        self.network.latency.draw(&mut self.network.rng)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
