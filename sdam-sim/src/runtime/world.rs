//! The mutable state of the world: time, timers, deliveries in transit, the deployment.

use std::{collections::BTreeMap, task::Waker, time::Duration};

use sdam_core::{address::ServerAddress, rng::Rng, time::Instant};

use super::{
    network::{Direction, End, Fate, NetworkState},
    trace::Trace,
};
use crate::{Action, ConnectionId, Deployment, MemberId, Output, Outputs, action::ActionError};

#[derive(Debug)]
pub(crate) struct World {
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

/// A network event in transit.
#[derive(Debug)]
enum Delivery {
    ToServer { link: u64, bytes: Vec<u8> },
    ToClient { link: u64, bytes: Vec<u8> },
    ClosedByServer { link: u64 },
    ClosedByClient { connection: ConnectionId },
}

/// The outcome of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Open(u64),
    Refused,
    /// There is no reply.
    Silent,
}

impl World {
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
    pub(super) fn pass_time(&mut self) -> Option<Vec<Waker>> {
        let next = [
            self.timers.first_key_value().map(|((at, _), _)| *at),
            self.deliveries.first_key_value().map(|((at, _), _)| *at),
            self.deployment.next_deadline(),
        ];
        let next = next.into_iter().flatten().min()?;
        // A deployment without clients has timers forever, which must not hide a deadlock.
        if self.timers.is_empty() && self.deliveries.is_empty() && self.network.links.is_empty() {
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

    pub(super) fn act(&mut self, action: &Action) -> Result<Vec<Waker>, ActionError> {
        let outputs = self.deployment.apply(self.now, action)?;
        let mut wakers = Vec::new();
        self.perform(outputs, &mut wakers);
        Ok(wakers)
    }

    /// Handles the arrival of a connection request at `address`.
    pub(super) fn accept(&mut self, address: &ServerAddress) -> Attempt {
        let Some(member) = self.member_at(address) else {
            return Attempt::Refused;
        };
        let door = self.network.door(member);
        if door.blackhole || self.is_cut_off(member) {
            return Attempt::Silent;
        }
        if door.refuse {
            return Attempt::Refused;
        }
        match self.deployment.open(member) {
            Some(connection) => Attempt::Open(self.network.add_link(self.now, member, connection)),
            None => Attempt::Refused,
        }
    }

    /// Returns whether `address` gives no reply to the program.
    pub(super) fn is_silent(&self, address: &ServerAddress) -> bool {
        self.deployment
            .member_at(address)
            .is_some_and(|member| self.network.door(member).blackhole || self.is_cut_off(member))
    }

    fn is_cut_off(&self, member: MemberId) -> bool {
        let status = self.deployment.status();
        let own = status.members.iter().find(|own| own.id == member);
        own.is_some_and(|own| own.running && !own.answers)
    }

    /// Returns the member at `address`. Behind a load balancer all mongoses share one address and
    /// take turns.
    fn member_at(&mut self, address: &ServerAddress) -> Option<MemberId> {
        let first = self.deployment.member_at(address)?;
        if !self.deployment.is_balanced() {
            return Some(first);
        }
        let count = self.deployment.status().members.len() as u16;
        self.next_mongos = (self.next_mongos + 1) % count.max(1);
        Some(MemberId(self.next_mongos))
    }

    /// Sends the program's bytes.
    pub(super) fn send(&mut self, link: u64, bytes: &[u8]) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for chunk in self.network.chunks(bytes) {
            match self
                .network
                .judge(self.now, link, Direction::ToServer, &chunk)
            {
                Fate::Lost => {}
                Fate::Reset => self.reset_link(link, &mut wakers),
                Fate::Arrives(at) => self.deliver_at(at, Delivery::ToServer { link, bytes: chunk }),
            }
        }
        wakers
    }

    /// Closes the program's end.
    pub(super) fn hang_up(&mut self, link: u64) {
        let Some(link) = self.network.remove_link(link) else {
            return;
        };
        let at = self.now + self.network.latency.draw(&mut self.network.rng);
        let at = at.max(link.last_arrival[Direction::ToServer as usize]);
        self.deliver_at(
            at,
            Delivery::ClosedByClient {
                connection: link.connection,
            },
        );
    }

    /// Resets every connection to `member`.
    pub(super) fn reset(&mut self, member: MemberId) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let of_member =
            |(id, link): (&u64, &super::network::Link)| (link.member == member).then_some(*id);
        let links: Vec<u64> = self.network.links.iter().filter_map(of_member).collect();
        for link in links {
            self.reset_link(link, &mut wakers);
        }
        wakers
    }

    fn reset_link(&mut self, link: u64, wakers: &mut Vec<Waker>) {
        if let Some(state) = self.network.links.get_mut(&link) {
            state.end = Some(End::Reset);
            state.cut = [true; 2];
            wakers.extend(state.reader.take());
            self.deployment.closed(state.connection);
        }
    }

    fn deliver(&mut self, delivery: Delivery, wakers: &mut Vec<Waker>) {
        match delivery {
            Delivery::ToServer { link, bytes } => {
                let Some(state) = self.network.links.get(&link) else {
                    return;
                };
                self.trace.frame(link, &bytes);
                let outputs = self.deployment.receive(self.now, state.connection, &bytes);
                self.perform(outputs, wakers);
            }
            Delivery::ToClient { link, bytes } => {
                self.trace.frame(link, &bytes);
                if let Some(state) = self.network.links.get_mut(&link) {
                    state.inbox.extend(bytes);
                    wakers.extend(state.reader.take());
                }
            }
            Delivery::ClosedByServer { link } => {
                if let Some(state) = self.network.links.get_mut(&link) {
                    state.end.get_or_insert(End::Closed);
                    wakers.extend(state.reader.take());
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
                    let Some(link) = self.network.by_connection.get(&connection).copied() else {
                        continue;
                    };
                    for chunk in self.network.chunks(&bytes) {
                        match self
                            .network
                            .judge(self.now, link, Direction::ToClient, &chunk)
                        {
                            Fate::Lost => {}
                            Fate::Reset => self.reset_link(link, wakers),
                            Fate::Arrives(at) => {
                                self.deliver_at(at, Delivery::ToClient { link, bytes: chunk });
                            }
                        }
                    }
                }
                Output::Close { connection } => {
                    let Some(link) = self.network.by_connection.get(&connection).copied() else {
                        continue;
                    };
                    let fate = self.network.judge(self.now, link, Direction::ToClient, &[]);
                    if let Fate::Arrives(at) = fate {
                        self.deliver_at(at, Delivery::ClosedByServer { link });
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
    pub(super) fn travel(&mut self) -> Duration {
        self.network.latency.draw(&mut self.network.rng)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
