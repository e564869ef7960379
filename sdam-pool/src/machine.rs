//! The state machine of one pool: its connections, its waiting check-outs and its next task (CMAP:
//! "Connection Pool").
//!
//! It has no lock, clock or socket. Methods leave actions in [`After`], which the caller carries
//! out after it has released the lock around the machine: tasks to wake and connections to close.

mod attempts;
#[cfg(all(test, not(sdam_loom)))]
mod tests;
mod waiters;
mod work;

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    task::Waker,
    time::Duration,
};

use sdam_core::{
    address::ServerAddress,
    error::Error,
    event::ConnectionClosedReason,
    ids::{Generation, ObjectId},
    pool::{PoolClear, PoolOptions},
    time::Instant,
};
use smallvec::SmallVec;

pub(crate) use self::{
    attempts::AttemptFailure,
    waiters::Ticket,
    work::{Step, Urgent, Work},
};
use self::{attempts::Attempts, waiters::Waiters, work::Early};

/// The properties of a connection that the machine needs.
pub(crate) trait Pooled {
    fn generation(&self) -> Generation;
    /// Returns the service behind a load balancer to which the connection leads.
    fn service(&self) -> Option<ObjectId>;
    /// Returns whether the connection can be used again. A connection cannot be used again if an
    /// exchange on it failed or was dropped, or if it was interrupted.
    fn is_usable(&self) -> bool;
}

/// The state machine of a pool of connections of type `C`.
#[derive(Debug)]
pub(crate) struct Machine<C> {
    config: Config,
    state: State,
    generation: Generation,
    /// Idle connections, the most recently used last.
    idle: VecDeque<Idle<C>>,
    /// The number of connections that are checked out or delivered to a waiter.
    in_use: usize,
    pinned: Pinned,
    waiters: Waiters<C>,
    attempts: Attempts,
    early: Early,
    services: Services,
    /// Connections to close that the worker has not yet taken.
    to_close: Vec<ToClose<C>>,
    /// An interruption of connections in use that the worker has yet to carry out.
    interrupt: Option<Interruption>,
    /// The earliest time to open another connection for `minPoolSize` after a failed attempt.
    fill_at: Option<Instant>,
    fill_failures: u32,
    /// Wakes the worker; `None` while the worker runs or once it has been woken.
    worker: Option<Waker>,
    /// The time at which the worker wakes up even without a notification.
    armed: Option<Instant>,
    opened: u64,
    closed: u64,
    /// The actions to perform after the lock is released.
    pub(crate) after: After<C>,
}

/// The constant settings of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) address: ServerAddress,
    pub(crate) options: PoolOptions,
    pub(crate) load_balanced: bool,
    /// True if there is no worker, so that check-outs open their connections themselves.
    pub(crate) by_caller: bool,
}

#[derive(Debug)]
enum State {
    /// No check has succeeded yet, or the pool was cleared. Contains the error that check-outs
    /// return.
    Paused(Option<Error>),
    Ready,
    Closed,
    /// The worker's runtime has ended, so connections can no longer be opened.
    RuntimeShutDown,
}

/// An idle connection.
#[derive(Debug)]
pub(crate) struct Idle<C> {
    pub(crate) connection: C,
    /// The time of the check-in or, without `maxIdleTimeMS`, of the last use.
    since: Instant,
}

/// Connections to close, and the reason.
#[derive(Debug)]
struct ToClose<C> {
    connections: VecDeque<Idle<C>>,
    /// The reason; `None` if the closed events are already published.
    reason: Option<ConnectionClosedReason>,
}

/// The connections in use that a clear interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interruption {
    /// Connections of earlier generations are interrupted.
    pub(crate) below: Generation,
    pub(crate) service: Option<ObjectId>,
}

/// The object to which a connection in use is pinned (Load Balancers: "Connection Pinning").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pin {
    /// A cursor, until it is exhausted or closed.
    Cursor,
    /// A transaction, until it is committed or aborted and the session is unpinned.
    Transaction,
}

#[derive(Debug, Default)]
struct Pinned {
    cursors: u32,
    transactions: u32,
}

/// The result of a check-out.
#[derive(Debug)]
pub(crate) enum CheckOut<C> {
    Connection(C),
    /// A connection that was idle for so long that it may have been closed by the server, or by a
    /// proxy or firewall in between. If it has been closed, the caller checks it in as unusable.
    Cold(C),
    Wait(Ticket),
}

/// Actions that the caller carries out after releasing the lock around the machine.
#[derive(Debug)]
pub(crate) struct After<C> {
    pub(crate) wake: SmallVec<[Waker; 2]>,
    pub(crate) close: Vec<(C, ConnectionClosedReason)>,
}

impl<C> Default for After<C> {
    fn default() -> Self {
        Self { wake: SmallVec::new(), close: Vec::new() }
    }
}

/// The numbers of connections and check-outs in a pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Connections available for check-out.
    pub idle: usize,
    /// Connections that are checked out.
    pub in_use: usize,
    /// Connections that are being established.
    pub pending: usize,
    /// Check-outs that wait for a connection.
    pub waiting: usize,
    /// Connections established since the pool was created.
    pub opened: u64,
    /// Connections closed since the pool was created.
    pub closed: u64,
    /// The generation of new connections.
    pub generation: Generation,
    /// True if connections can be checked out.
    pub is_ready: bool,
}

impl<C: Pooled> Machine<C> {
    pub(crate) fn new(config: Config, generation: Generation) -> Self {
        Self {
            attempts: Attempts::new(config.options.max_connecting as usize),
            config,
            state: State::Paused(None),
            generation,
            idle: VecDeque::new(),
            in_use: 0,
            pinned: Pinned::default(),
            waiters: Waiters::new(),
            early: Early::None,
            services: Services::default(),
            to_close: Vec::new(),
            interrupt: None,
            fill_at: None,
            fill_failures: 0,
            worker: None,
            armed: None,
            opened: 0,
            closed: 0,
            after: After::default(),
        }
    }

    /// Allows connections to be opened (CMAP: "Marking a Connection Pool as Ready"). Connections
    /// for `minPoolSize` are not opened before `fill_at`.
    pub(crate) fn ready(&mut self, fill_at: Option<Instant>) {
        if let State::Paused(_) = self.state {
            self.state = State::Ready;
            self.fill_at = fill_at;
            self.fill_failures = 0;
            self.early.ready();
            self.start_attempts();
        }
    }

    /// Makes connections stale (CMAP: "Clearing a Connection Pool"). Takes constant time: the
    /// worker closes the idle connections and wakes the evicted check-outs later.
    pub(crate) fn clear(&mut self, clear: &PoolClear) {
        if let Some(service) = clear.service_id {
            self.services.clear(service, clear.generation);
            if self.attempts.is_empty() {
                self.services.prune();
            }
        } else {
            self.generation = self.generation.max(clear.generation);
            if let State::Paused(_) | State::Ready = self.state {
                let cleared = Error::pool_cleared(&self.config.address, &clear.cause);
                self.state = State::Paused(Some(cleared));
                self.early.give_up();
                self.close_idle(ConnectionClosedReason::Stale);
                self.waiters.evict(self.eviction());
            }
        }
        if clear.interrupt_in_use {
            self.interrupt =
                Some(Interruption { below: clear.generation, service: clear.service_id });
            if clear.service_id.is_none() {
                self.cancel_attempts();
            }
        }
        self.wake_worker();
    }

    /// Closes the pool (CMAP: "Closing a Connection Pool"). Returns the idle connections, unless
    /// the pool is already closed.
    ///
    /// The caller publishes their closed events and passes the connections to
    /// [`close_later`](Self::close_later).
    pub(crate) fn close(&mut self) -> Option<VecDeque<Idle<C>>> {
        if let State::Closed = self.state {
            return None;
        }
        self.state = State::Closed;
        self.early.give_up();
        self.waiters.evict(self.eviction());
        Some(self.take_idle())
    }

    /// Passes connections, whose closed events are already published, to the worker to be closed.
    pub(crate) fn close_later(&mut self, connections: VecDeque<Idle<C>>) {
        self.to_close.push(ToClose { connections, reason: None });
        self.cancel_attempts();
        self.wake_worker();
    }

    /// Takes an idle connection, or joins the wait queue (CMAP: "Checking Out a Connection").
    pub(crate) fn check_out(&mut self, now: Instant) -> Result<CheckOut<C>, Error> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        if let Some(Idle { connection, since }) = self.next_idle(now) {
            let is_cold = since + LOOK_AFTER < now;
            let taken = if is_cold { CheckOut::Cold } else { CheckOut::Connection };
            return Ok(taken(connection));
        }
        let ticket = self.waiters.join();
        self.start_attempts();
        Ok(CheckOut::Wait(ticket))
    }

    /// Takes a connection back: hands it to the first waiter, keeps it, or returns it to be closed
    /// (CMAP: "Checking In a Connection").
    pub(crate) fn check_in(&mut self, connection: C, pin: Option<Pin>, now: Instant) {
        self.in_use -= 1;
        self.unpin(pin);
        self.settle(connection, now);
    }

    /// Counts a connection in use as pinned.
    pub(crate) fn pin(&mut self, pin: Pin) {
        *self.pinned.count(pin) += 1;
    }

    /// Reverts [`pin`](Self::pin).
    pub(crate) fn unpin(&mut self, pin: Option<Pin>) {
        if let Some(pin) = pin {
            *self.pinned.count(pin) -= 1;
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats {
            idle: self.idle.len(),
            in_use: self.in_use,
            pending: self.attempts.len(),
            waiting: self.waiters.len() + self.attempts.owners().count(),
            opened: self.opened,
            closed: self.closed,
            generation: self.generation,
            is_ready: matches!(self.state, State::Ready),
        }
    }

    /// Takes the most recently used idle connection, and counts it as in use.
    fn next_idle(&mut self, now: Instant) -> Option<Idle<C>> {
        while let Some(idle) = self.idle.pop_back() {
            let reason = if self.is_stale(&idle.connection) {
                ConnectionClosedReason::Stale
            } else if self.is_expired(idle.since, now) {
                ConnectionClosedReason::Idle
            } else {
                self.in_use += 1;
                return Some(idle);
            };
            self.forget(&idle.connection);
            self.after.close.push((idle.connection, reason));
        }
        None
    }

    /// Delivers, keeps or closes a connection that is no longer in use.
    fn settle(&mut self, connection: C, since: Instant) {
        let reason = if !connection.is_usable() {
            ConnectionClosedReason::Error
        } else if let State::Closed | State::RuntimeShutDown = self.state {
            ConnectionClosedReason::PoolClosed
        } else if self.is_stale(&connection) {
            ConnectionClosedReason::Stale
        } else {
            self.place(connection, since);
            return;
        };
        self.forget(&connection);
        self.after.close.push((connection, reason));
        self.start_attempts();
    }

    /// Hands a usable connection to the waiter that has waited longest, or keeps it.
    fn place(&mut self, connection: C, since: Instant) {
        // Without a worker, an owner whose attempt blocks its thread cannot take the connection.
        let can_take = |owner: &Ticket| !self.config.by_caller || self.waiters.is_polled(*owner);
        let waiter = match self.attempts.oldest_owner(can_take) {
            Some(owner) => {
                let next = self.next_owner();
                self.attempts.replace_owner(owner, next);
                Some(owner)
            }
            None => self.waiters.next(),
        };
        if let Some(waiter) = waiter {
            self.in_use += 1;
            self.after.wake.extend(self.waiters.deliver(waiter, connection));
            self.pass_turn();
            return;
        }
        self.idle.push_back(Idle { connection, since });
        // The timer may be armed for a later task, such as the filling of the pool.
        let expiry = self.config.options.max_idle_time.map(|limit| since + limit);
        if expiry.is_some_and(|expiry| self.armed.is_none_or(|armed| expiry < armed)) {
            self.wake_worker();
        }
    }

    /// Returns the error of a new check-out if no connection can be checked out now.
    fn refusal(&self) -> Option<Error> {
        match self.state {
            State::Ready => None,
            State::Paused(_) | State::Closed | State::RuntimeShutDown => Some(self.eviction()),
        }
    }

    /// Returns the error for check-outs that are evicted because the pool is cleared or closed.
    fn eviction(&self) -> Error {
        let address = &self.config.address;
        match &self.state {
            State::Closed => Error::pool_closed(address),
            State::RuntimeShutDown => Error::pool_shut_down(address),
            State::Paused(Some(cleared)) => cleared.clone(),
            State::Paused(None) | State::Ready => Error::pool_not_ready(address),
        }
    }

    fn is_stale(&self, connection: &C) -> bool {
        match connection.service() {
            Some(service) => self.services.is_stale(service, connection.generation()),
            None => connection.generation() < self.generation,
        }
    }

    /// Returns whether the connection is stale because its service was cleared. Unlike a clear of
    /// the whole pool, this evicts no check-outs (CMAP: "Clearing a load balanced pool").
    fn has_lost_service(&self, connection: &C) -> bool {
        let is_ready = matches!(self.state, State::Ready);
        is_ready && connection.service().is_some() && self.is_stale(connection)
    }

    fn is_expired(&self, since: Instant, now: Instant) -> bool {
        let limit = self.config.options.max_idle_time;
        limit.is_some_and(|limit| since + limit <= now)
    }

    /// Counts a connection that is about to be closed.
    fn forget(&mut self, connection: &C) {
        self.closed += 1;
        if let Some(service) = connection.service() {
            self.services.closed(service, !self.attempts.is_empty());
        }
    }

    /// Passes the idle connections to the worker to be closed.
    fn close_idle(&mut self, reason: ConnectionClosedReason) {
        if !self.idle.is_empty() {
            let idle = ToClose { connections: self.take_idle(), reason: Some(reason) };
            self.to_close.push(idle);
        }
    }

    /// Removes all idle connections and returns them to be closed. Takes constant time, except
    /// behind a load balancer.
    fn take_idle(&mut self) -> VecDeque<Idle<C>> {
        let idle = mem::take(&mut self.idle);
        self.closed += idle.len() as u64;
        if self.config.load_balanced {
            let services = idle.iter().filter_map(|idle| idle.connection.service());
            let is_pending = !self.attempts.is_empty();
            services.for_each(|service| self.services.closed(service, is_pending));
        }
        idle
    }

    fn total(&self) -> usize {
        self.idle.len() + self.in_use + self.attempts.len()
    }

    fn wake_worker(&mut self) {
        self.after.wake.extend(self.worker.take());
    }
}

/// The idle time after which a connection is checked before it is used.
const LOOK_AFTER: Duration = Duration::from_secs(1);

impl Pinned {
    fn count(&mut self, pin: Pin) -> &mut u32 {
        match pin {
            Pin::Cursor => &mut self.cursors,
            Pin::Transaction => &mut self.transactions,
        }
    }
}

/// The current generation of each service behind a load balancer, by which stale connections are
/// recognized (CMAP: "Load Balancer Mode").
///
/// The topology assigns the generations. A service is kept while it has connections, and while any
/// connection is being established, because that connection may turn out to lead to a service that
/// was cleared in the meantime.
#[derive(Debug, Default)]
struct Services {
    known: BTreeMap<ObjectId, Service>,
    /// True if a service was cleared since the last call of [`take_cleared`](Self::take_cleared).
    has_cleared: bool,
}

#[derive(Debug, Default)]
struct Service {
    connections: usize,
    /// Connections of earlier generations are stale.
    cleared: Option<Generation>,
}

impl Services {
    fn clear(&mut self, service: ObjectId, generation: Generation) {
        self.has_cleared = true;
        let service = self.known.entry(service).or_default();
        service.cleared = service.cleared.max(Some(generation));
    }

    fn opened(&mut self, service: ObjectId) {
        self.known.entry(service).or_default().connections += 1;
    }

    /// Counts a closed connection. `is_pending` is true if another connection is being established.
    fn closed(&mut self, id: ObjectId, is_pending: bool) {
        if let Some(service) = self.known.get_mut(&id) {
            service.connections = service.connections.saturating_sub(1);
            if service.connections == 0 && !is_pending {
                self.known.remove(&id);
            }
        }
    }

    /// Removes all services that have no connections. Called only while no connection is being
    /// established.
    fn prune(&mut self) {
        self.known.retain(|_, service| service.connections > 0);
    }

    /// Returns whether a service was cleared since the last call.
    fn take_cleared(&mut self) -> bool {
        mem::take(&mut self.has_cleared)
    }

    fn is_stale(&self, service: ObjectId, generation: Generation) -> bool {
        let service = self.known.get(&service);
        service.is_some_and(|service| service.cleared.is_some_and(|cleared| generation < cleared))
    }
}
