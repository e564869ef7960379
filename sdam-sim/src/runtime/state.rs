//! The mutable state of the simulation: time, timers, deliveries in transit, the deployment.

use std::{collections::BTreeMap, task::Waker, time::Duration};

use sdam_core::{address::ServerAddress, rng::Rng, time::Instant};

use super::{
    dns::DnsFault,
    network::{Direction, End, NetworkState, Transmission},
    trace::Trace,
};
use crate::{Action, ConnectionId, Deployment, MemberId, Output, Outputs, action::ActionError};

#[derive(Debug)]
pub(crate) struct SimState {
    now: Instant,
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

/// The outcome of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectAttempt {
    Open(u64),
    Refused,
    /// There is no reply.
    Silent,
}

impl SimState {
    pub(super) fn new(deployment: Deployment, rng: Rng) -> Self {
        Self {
            now: Instant::EPOCH,
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

    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Sets or renews a timer; returns its id.
    pub(super) fn set_timer(&mut self, at: Instant, timer: Option<u64>, waker: &Waker) -> u64 {
        let number = timer.unwrap_or_else(|| self.next_number());
        self.timers.insert((at, number), waker.clone());
        number
    }

    pub(super) fn cancel_timer(&mut self, at: Instant, timer: u64) {
        self.timers.remove(&(at, timer));
    }

    /// Advances time to the next event, and returns the wakers that it triggers; `None` if there
    /// is no next event.
    pub(super) fn advance(&mut self) -> Option<Vec<Waker>> {
        let next = [
            self.timers.first_key_value().map(|((at, _), _)| *at),
            self.deliveries.first_key_value().map(|((at, _), _)| *at),
            self.deployment.next_deadline(),
        ];
        let next = next.into_iter().flatten().min()?;
        // A deployment without clients has timers forever, which must not hide a deadlock.
        if self.timers.is_empty() && self.deliveries.is_empty() && self.network.sockets.is_empty() {
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

    pub(super) fn apply(&mut self, action: &Action) -> Result<Vec<Waker>, ActionError> {
        let outputs = self.deployment.apply(self.now, action)?;
        let mut wakers = Vec::new();
        self.perform(outputs, &mut wakers);
        Ok(wakers)
    }

    pub(super) fn set_dns_fault(&mut self, name: Option<&str>, fault: Option<DnsFault>) {
        self.network.dns.set_fault(self.now, name, fault);
    }

    /// Handles the arrival of a connection request at `address`.
    pub(super) fn accept(&mut self, address: &ServerAddress) -> ConnectAttempt {
        let Some(member) = self.member_at(address) else {
            return ConnectAttempt::Refused;
        };
        let port = self.network.port(member);
        if port.blackhole || self.is_cut_off(member) {
            return ConnectAttempt::Silent;
        }
        if port.refuse {
            return ConnectAttempt::Refused;
        }
        match self.deployment.open(member) {
            Some(connection) => {
                ConnectAttempt::Open(self.network.add_socket(self.now, member, connection))
            }
            None => ConnectAttempt::Refused,
        }
    }

    /// Returns whether `address` gives no reply to the program.
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

    /// Returns the member at `address`, directly or behind a port forwarder. Behind a load balancer
    /// mongoses share an address and take turns.
    fn member_at(&mut self, address: &ServerAddress) -> Option<MemberId> {
        if let Some(member) = self.network.forwarders.get(address) {
            return Some(*member);
        }
        let members = self.deployment.members_at(address);
        self.next_mongos = self.next_mongos.wrapping_add(1);
        members
            .get(usize::from(self.next_mongos) % members.len().max(1))
            .copied()
    }

    /// Sends the program's bytes.
    pub(super) fn send(&mut self, id: u64, bytes: &[u8]) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for chunk in self.network.chunks(bytes) {
            match self
                .network
                .transmit(self.now, id, Direction::ToServer, &chunk)
            {
                Transmission::Lost => {}
                Transmission::Reset => self.reset_socket(id, &mut wakers),
                Transmission::Arrives(at) => {
                    self.deliver_at(at, Delivery::ToServer { id, bytes: chunk });
                }
            }
        }
        wakers
    }

    /// Closes the program's end.
    pub(super) fn close_socket(&mut self, id: u64) {
        let Some(socket) = self.network.remove_socket(id) else {
            return;
        };
        let at = self.now + self.network.latency.draw(&mut self.network.rng);
        let at = at.max(socket.last_arrival[Direction::ToServer as usize]);
        self.deliver_at(
            at,
            Delivery::ClosedByClient {
                connection: socket.connection,
            },
        );
    }

    /// Resets every connection to `member`.
    pub(super) fn reset(&mut self, member: MemberId) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let of_member = |(id, socket): (&u64, &super::network::Socket)| {
            (socket.member == member).then_some(*id)
        };
        let sockets: Vec<u64> = self.network.sockets.iter().filter_map(of_member).collect();
        for id in sockets {
            self.reset_socket(id, &mut wakers);
        }
        wakers
    }

    fn reset_socket(&mut self, id: u64, wakers: &mut Vec<Waker>) {
        if let Some(socket) = self.network.sockets.get_mut(&id) {
            socket.end = Some(End::Reset);
            socket.cut = [true; 2];
            wakers.extend(socket.reader.take());
            self.deployment.closed(socket.connection);
        }
    }

    fn deliver(&mut self, delivery: Delivery, wakers: &mut Vec<Waker>) {
        match delivery {
            Delivery::ToServer { id, bytes } => {
                let Some(socket) = self.network.sockets.get(&id) else {
                    return;
                };
                self.trace.frame(id, &bytes);
                let outputs = self.deployment.receive(self.now, socket.connection, &bytes);
                self.perform(outputs, wakers);
            }
            Delivery::ToClient { id, bytes } => {
                self.trace.frame(id, &bytes);
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
    fn perform(&mut self, outputs: Outputs, wakers: &mut Vec<Waker>) {
        for output in outputs {
            match output {
                Output::Send { connection, bytes } => {
                    let Some(id) = self.network.by_connection.get(&connection).copied() else {
                        continue;
                    };
                    for chunk in self.network.chunks(&bytes) {
                        match self
                            .network
                            .transmit(self.now, id, Direction::ToClient, &chunk)
                        {
                            Transmission::Lost => {}
                            Transmission::Reset => self.reset_socket(id, wakers),
                            Transmission::Arrives(at) => {
                                self.deliver_at(at, Delivery::ToClient { id, bytes: chunk });
                            }
                        }
                    }
                }
                Output::Close { connection } => {
                    let Some(id) = self.network.by_connection.get(&connection).copied() else {
                        continue;
                    };
                    let transmission =
                        self.network
                            .transmit(self.now, id, Direction::ToClient, &[]);
                    if let Transmission::Arrives(at) = transmission {
                        self.deliver_at(at, Delivery::ClosedByServer { id });
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
