//! The mutable state of the simulation: time, timers, the network, deliveries in transit, and the
//! deployment.

use std::{collections::BTreeMap, task::Waker, time::Duration};

use sdam_core::{
    address::ServerAddress,
    rng::{Rng, mix},
    time::{Instant, UnixTime},
};

use super::{
    disturbance::{Disturbance, Disturbances},
    network::{Direction, NetworkState, Transmission},
    proxy::{ProxyFault, Refusal, Step},
    socket::{End, Socket},
    tls::Terms,
};
use crate::{Action, Cluster, ConnectionId, MemberId, Output, Outputs, action::ActionError};

#[derive(Debug)]
pub(crate) struct SimState {
    /// The end of the latest stall of the program's host, if it has ever stalled.
    stalled: Option<Instant>,
    pub(super) deployment: Cluster,
    pub(super) network: NetworkState,
    pub(super) disturbances: Disturbances,
    pub(super) trace: Trace,
    pub(super) timers: BTreeMap<(Instant, u64), Waker>,
    deliveries: BTreeMap<(Instant, u64), Delivery>,
    /// The wakers of the tasks that must be woken after the current change.
    pub(super) woken: Vec<Waker>,
    last_number: u64,
    /// The mongos that the load balancer uses for the next connection.
    next_mongos: u16,
}

/// A network event in transit, with the id of its connection.
#[derive(Debug)]
enum Delivery {
    Bytes { id: u64, direction: Direction, bytes: Vec<u8> },
    ClosedByServer { id: u64 },
    ClosedByClient { connection: ConnectionId },
}

/// The reason why an address could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreached {
    /// The server or the proxy refuses the connection, or its process is not running.
    Refused,
    /// There is no reply.
    Silent,
    /// There is no server at the address.
    Nowhere,
}

impl SimState {
    pub(super) fn new(deployment: Cluster, rng: Rng) -> Self {
        Self {
            stalled: None,
            deployment,
            network: NetworkState::new(rng),
            disturbances: Disturbances::default(),
            trace: Trace::default(),
            timers: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            woken: Vec::new(),
            last_number: 0,
            next_mongos: 0,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.deployment.now
    }

    /// Returns the wall clock time, which is the same for all servers.
    pub(super) fn wall(&self) -> UnixTime {
        let millis = self.deployment.date();
        UnixTime::from_millis(u64::try_from(millis).unwrap_or_default())
    }

    /// Creates a timer, or changes the deadline of the existing timer `timer`. Returns the timer's
    /// id.
    pub(super) fn set_timer(&mut self, at: Instant, timer: Option<u64>, waker: &Waker) -> u64 {
        let number = timer.unwrap_or_else(|| self.next_number());
        self.timers.insert((at, number), waker.clone());
        number
    }

    /// Advances time to the next event. Returns whether there was an event.
    pub(super) fn advance(&mut self) -> bool {
        let next = [
            self.timers.first_key_value().map(|((at, _), _)| *at),
            self.deliveries.first_key_value().map(|((at, _), _)| *at),
            self.deployment.next_deadline(),
            self.stalled.filter(|_| self.is_stalled()),
        ];
        let Some(next) = next.into_iter().flatten().min() else {
            return false;
        };
        // Even without clients, a deployment always has timers, but these must not hide a deadlock.
        if !self.is_stalled()
            && self.timers.is_empty()
            && self.deliveries.is_empty()
            && self.network.sockets.is_empty()
        {
            return false;
        }
        let now = self.now().max(next);
        self.trace.time(now);
        let outputs = self.deployment.advance(now);
        self.perform(outputs);
        while let Some(entry) = self.deliveries.first_entry()
            && entry.key().0 <= now
        {
            let delivery = entry.remove();
            self.deliver(delivery);
        }
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            self.woken.push(entry.remove());
        }
        true
    }

    pub(super) fn stall(&mut self, duration: Duration) {
        self.stalled = self.stalled.max(Some(self.now() + duration));
    }

    /// Returns whether the program's tasks are stopped.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.is_some_and(|end| self.now() < end)
    }

    pub(super) fn apply(&mut self, action: &Action) -> Result<(), ActionError> {
        let outputs = self.deployment.apply(self.now(), action)?;
        self.perform(outputs);
        self.resume_handshakes();
        Ok(())
    }

    /// Handles the arrival of a connection request at `address`. Returns the connection's id.
    pub(super) fn accept(&mut self, address: &ServerAddress) -> Result<u64, Unreached> {
        if let Some(proxy) = self.network.proxies.get(address) {
            self.network.traffic.proxied += 1;
            if proxy.fault == Some(ProxyFault::Down) {
                return Err(Unreached::Refused);
            }
            return Ok(self.network.add_socket(self.now(), Some(address.clone())));
        }
        let reached = self.reach(address);
        self.network.traffic.direct += u64::from(reached != Err(Unreached::Nowhere));
        let server = reached?;
        let now = self.now();
        let id = self.network.add_socket(now, None);
        self.network.link(id, server);
        let Some(turn) = self.network.admit(now, server.member) else {
            self.network.traffic.refused += 1;
            self.deployment.closed(server);
            self.close_for_client(id);
            return Ok(id);
        };
        self.network.traffic.delayed += u64::from(turn > now);
        if let Some(socket) = self.network.sockets.get_mut(&id) {
            socket.last_arrival[Direction::ToServer as usize] = turn;
        }
        Ok(id)
    }

    /// Opens a connection to the server at `address`, for the program or a proxy.
    pub(super) fn reach(&mut self, address: &ServerAddress) -> Result<ConnectionId, Unreached> {
        let member = self.member_at(address).ok_or(Unreached::Nowhere)?;
        let port = self.network.port(member);
        if port.blackhole || self.is_cut_off(member) {
            return Err(Unreached::Silent);
        }
        if port.refuse {
            return Err(Unreached::Refused);
        }
        self.deployment.open(member).ok_or(Unreached::Refused)
    }

    /// Returns whether the program gets no reply from `address`.
    pub(super) fn is_silent(&self, address: &ServerAddress) -> bool {
        let forwarded = self.network.forwarders.get(address).copied();
        forwarded
            .or_else(|| self.deployment.member_at(address))
            .is_some_and(|member| self.network.port(member).blackhole || self.is_cut_off(member))
    }

    fn is_cut_off(&self, member: MemberId) -> bool {
        let own = self.deployment.member(member);
        own.is_running() && !own.answers()
    }

    /// Returns the member at `address`, directly or behind a port forwarder. Behind a load
    /// balancer, the mongoses share an address and take turns.
    fn member_at(&mut self, address: &ServerAddress) -> Option<MemberId> {
        if let Some(member) = self.network.forwarders.get(address) {
            return Some(*member);
        }
        let members = self.deployment.members_at(address);
        self.next_mongos = self.next_mongos.wrapping_add(1);
        members.get(usize::from(self.next_mongos) % members.len().max(1)).copied()
    }

    /// Sends bytes from the program. Returns whether the connection is open.
    pub(super) fn send(&mut self, id: u64, bytes: &[u8]) -> bool {
        let network = &mut self.network;
        let Some(socket) = network.sockets.get_mut(&id).filter(|own| own.end.is_none()) else {
            return false;
        };
        socket.tap.read(bytes, &mut network.traffic);
        self.transmit(id, Direction::ToServer, bytes);
        true
    }

    /// Sends bytes over the network, in one or more pieces.
    pub(super) fn transmit(&mut self, id: u64, direction: Direction, bytes: &[u8]) {
        let splits =
            self.network.latency.chunked || self.disturbances.occurs(Disturbance::SplitMessage);
        let pieces = if splits { self.network.chunks(bytes) } else { vec![bytes.to_vec()] };
        for bytes in pieces {
            match self.network.transmit(self.now(), id, direction, &bytes) {
                Transmission::Lost => {}
                Transmission::Reset => self.reset_socket(id),
                Transmission::Arrives(at) => {
                    self.deliver_at(at, Delivery::Bytes { id, direction, bytes });
                }
            }
        }
    }

    /// Closes the server's or the proxy's end of the connection.
    fn close_for_client(&mut self, id: u64) {
        let transmission = self.network.transmit(self.now(), id, Direction::ToClient, &[]);
        if let Transmission::Arrives(at) = transmission {
            self.deliver_at(at, Delivery::ClosedByServer { id });
        }
    }

    /// Closes the program's end of the connection.
    pub(super) fn close_socket(&mut self, id: u64) {
        let Some(socket) = self.network.remove_socket(id) else {
            return;
        };
        let at = self.now() + self.one_way();
        let at = at.max(socket.last_arrival[Direction::ToServer as usize]);
        if let Some(connection) = socket.server {
            self.deliver_at(at, Delivery::ClosedByClient { connection });
        }
    }

    /// Resets the connections that `which` selects, and returns their number.
    pub(super) fn reset_sockets(&mut self, which: impl Fn(&Socket) -> bool) -> usize {
        let sockets = self.network.sockets.iter();
        let sockets = sockets.filter_map(|(id, socket)| which(socket).then_some(*id));
        let sockets: Vec<u64> = sockets.collect();
        for id in &sockets {
            self.reset_socket(*id);
        }
        sockets.len()
    }

    fn reset_socket(&mut self, id: u64) {
        if let Some(socket) = self.network.sockets.get_mut(&id) {
            socket.end = Some(End::Reset);
            socket.cut = [true; 2];
            self.woken.extend(socket.reader.take());
            if let Some(server) = socket.server {
                self.deployment.closed(server);
            }
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Bytes { id, direction: Direction::ToServer, bytes } => {
                if self.network.sockets.contains_key(&id) {
                    self.trace.delivery(id, bytes.len());
                    self.arrive(id, &bytes);
                }
            }
            Delivery::Bytes { id, direction: Direction::ToClient, bytes } => {
                self.trace.delivery(id, bytes.len());
                if let Some(socket) = self.network.sockets.get_mut(&id) {
                    socket.inbox.extend(bytes);
                    self.woken.extend(socket.reader.take());
                }
            }
            Delivery::ClosedByServer { id } => {
                if let Some(socket) = self.network.sockets.get_mut(&id) {
                    socket.end.get_or_insert(End::Closed);
                    self.woken.extend(socket.reader.take());
                }
            }
            Delivery::ClosedByClient { connection } => self.deployment.closed(connection),
        }
    }

    /// Performs the outputs of the deployment.
    pub(super) fn perform(&mut self, outputs: Outputs) {
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
                    self.transmit(id, Direction::ToClient, &sealed);
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

impl SimState {
    /// Handles bytes that arrive from the program.
    pub(super) fn arrive(&mut self, id: u64, bytes: &[u8]) {
        let Some(socket) = self.network.sockets.get_mut(&id) else {
            return;
        };
        let Some((address, session)) = &mut socket.proxy else {
            return self.arrive_at_server(id, bytes);
        };
        let proxy = self.network.proxies.get(address);
        let login = proxy.and_then(|proxy| proxy.login.as_ref());
        let steps = session.receive(bytes, login);
        self.perform_for_proxy(id, steps);
    }

    fn perform_for_proxy(&mut self, id: u64, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Reply(reply) => self.transmit(id, Direction::ToClient, &reply),
                Step::Refuse(reply) => {
                    self.transmit(id, Direction::ToClient, &reply);
                    self.close_for_client(id);
                }
                Step::Forward(bytes) => self.arrive_at_server(id, &bytes),
                Step::Connect(address) => {
                    let outcome = if self.rejects(id) {
                        Err(Refusal::Ruleset)
                    } else {
                        match self.reach(&address) {
                            Ok(server) => {
                                self.network.link(id, server);
                                Ok(())
                            }
                            Err(Unreached::Nowhere) => Err(Refusal::HostUnreachable),
                            Err(Unreached::Refused) => Err(Refusal::ConnectionRefused),
                            // The proxy waits, because the server is silent.
                            Err(Unreached::Silent) => continue,
                        }
                    };
                    let socket = self.network.sockets.get_mut(&id);
                    let session = socket.and_then(|socket| socket.proxy.as_mut());
                    if let Some((_, session)) = session {
                        let steps = session.connected(outcome);
                        self.perform_for_proxy(id, steps);
                    }
                }
            }
        }
    }

    /// Returns whether the connection's proxy refuses to connect to servers (`ProxyFault::Reject`).
    fn rejects(&self, id: u64) -> bool {
        let socket = self.network.sockets.get(&id);
        let address = socket.and_then(|socket| socket.proxy.as_ref());
        let proxy = address.and_then(|(address, _)| self.network.proxies.get(address));
        proxy.is_some_and(|proxy| proxy.fault == Some(ProxyFault::Reject))
    }

    fn arrive_at_server(&mut self, id: u64, bytes: &[u8]) {
        let Some(socket) = self.network.sockets.get_mut(&id) else {
            return;
        };
        let Some(connection) = socket.server else {
            return;
        };
        let member = self.deployment.member(connection.member);
        let received = socket.tls.receive(
            &Terms {
                tls: &self.network.tls,
                member: connection.member,
                host: member.address.host(),
                answers: member.answers(),
            },
            bytes,
        );
        if !received.send.is_empty() {
            self.transmit(id, Direction::ToClient, &received.send);
        }
        if !received.plain.is_empty() {
            self.trace.message(&received.plain);
            let now = self.now();
            let outputs = self.deployment.receive(now, connection, &received.plain);
            self.perform(outputs);
        }
        if received.close {
            self.deployment.closed(connection);
            self.close_for_client(id);
        }
    }

    /// Resumes handshakes that waited for a server process.
    fn resume_handshakes(&mut self) {
        let sockets = self.network.sockets.iter();
        let waiting = sockets.filter_map(|(id, own)| own.tls.is_waiting().then_some(*id));
        for id in waiting.collect::<Vec<u64>>() {
            self.arrive_at_server(id, &[]);
        }
    }
}

/// Hashes the events of a run, in order.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) hash: u64,
    /// The number of events.
    pub(super) steps: u64,
}

impl Trace {
    pub(super) fn task(&mut self, task: u64) {
        self.add(1, task);
    }

    pub(super) fn time(&mut self, now: Instant) {
        self.add(2, now.as_nanos());
    }

    pub(super) fn delivery(&mut self, socket: u64, length: usize) {
        self.add(3, socket);
        self.add(4, length as u64);
    }

    /// Hashes a message from a server process. The message is hashed before it is encrypted,
    /// because encryption keys are random.
    pub(super) fn message(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.hash = mix(self.hash ^ u64::from_le_bytes(word));
        }
    }

    fn add(&mut self, kind: u64, value: u64) {
        self.steps += 1;
        self.hash = mix(self.hash.wrapping_mul(31) ^ value.wrapping_add(kind << 56));
    }
}
