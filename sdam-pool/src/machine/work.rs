//! The tasks of a pool's worker, and the steps of a waiting check-out. The worker also opens a
//! socket early, before the pool is ready for the first time.

use std::{
    mem,
    task::{Poll, Waker},
    time::Duration,
};

use sdam_core::{error::Error, event::ConnectionClosedReason, time::Instant};

use super::{Idle, Interruption, Machine, Pooled, State, Ticket};

/// The maximum number of connections or wakers that are taken each time the lock is held.
const BATCH: usize = 64;
/// The time for which a socket that is opened early is kept open if it is not used.
const UNUSED: Duration = Duration::from_secs(1);

/// The worker's next task.
#[derive(Debug)]
pub(crate) enum Work<C> {
    /// Interrupt commands on connections in use, or wake evicted check-outs.
    Urgent(Urgent),
    /// Drop the attempts that were cancelled.
    Cancel,
    /// Close connections for this reason, which is `None` if their closed events are already
    /// published.
    Close(Vec<C>, Option<ConnectionClosedReason>),
    /// Open a socket for the next attempt.
    Dial,
    /// Drop the socket opened by [`Dial`](Self::Dial).
    DropEarly,
    /// Open the connection with this number, over the socket opened by [`Dial`](Self::Dial) if
    /// there is one.
    Open(u64),
    /// Wait until the worker is woken, or at most until this time.
    Wait(Option<Instant>),
    /// Stop: the pool is closed, and all work is done.
    End,
}

/// Tasks that may run while the lock of the topology is held.
#[derive(Debug)]
pub(crate) enum Urgent {
    /// Interrupt commands on connections in use.
    Interrupt(Interruption),
    /// Wake evicted check-outs.
    Wake(Vec<Waker>),
}

/// The next step of a waiting check-out.
#[derive(Debug)]
pub(crate) enum Step<C> {
    Done(Result<C, Error>),
    /// The check-out opens the connection with this number itself.
    Open(u64),
}

/// The state of the early socket, which the worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Early {
    #[default]
    None,
    /// The worker has to dial.
    Wanted,
    Dialing,
    /// The socket is open, and kept until this time.
    Open(Instant),
    /// The worker has to drop the socket.
    Unwanted,
}

impl Early {
    /// Marks the socket as unwanted, if there is one.
    pub(super) fn give_up(&mut self) {
        *self = match *self {
            Self::None | Self::Wanted => Self::None,
            Self::Dialing | Self::Open(_) | Self::Unwanted => Self::Unwanted,
        };
    }

    /// Cancels the dialing if it has not begun: once the pool is ready, a check-out opens a
    /// connection as soon as it needs one.
    pub(super) fn ready(&mut self) {
        if *self == Self::Wanted {
            *self = Self::None;
        }
    }

    /// Returns the time at which the socket must be dropped.
    fn expiry(self) -> Option<Instant> {
        match self {
            Self::Open(until) => Some(until),
            Self::None | Self::Wanted | Self::Dialing | Self::Unwanted => None,
        }
    }

    /// Returns the task of the worker at `now`, if any: true to dial, false to drop the socket.
    fn work(&mut self, now: Instant) -> Option<bool> {
        let (next, dials) = match *self {
            Self::Wanted => (Self::Dialing, true),
            Self::Unwanted => (Self::None, false),
            Self::Open(until) if until <= now => (Self::None, false),
            Self::None | Self::Dialing | Self::Open(_) => return None,
        };
        *self = next;
        Some(dials)
    }
}

impl<C: Pooled> Machine<C> {
    /// Returns the worker's next task. With [`Work::Wait`], swaps `waker` with the waker that is
    /// stored for the worker.
    pub(crate) fn work(&mut self, now: Instant, waker: &mut Option<Waker>) -> Work<C> {
        if let Some(urgent) = self.urgent_work() {
            return Work::Urgent(urgent);
        }
        if self.attempts.take_cancelled() {
            return Work::Cancel;
        }
        self.close_expired(now);
        self.close_idle_to_cleared_services();
        if let Some((connections, reason)) = self.take_to_close() {
            return Work::Close(connections, reason);
        }
        if let Some(dials) = self.early.work(now) {
            return if dials { Work::Dial } else { Work::DropEarly };
        }
        if let Some(id) = self.begin_attempt(now) {
            self.early = Early::None;
            return Work::Open(id);
        }
        if let (State::Closed, true) = (&self.state, self.attempts.is_empty()) {
            return Work::End;
        }
        self.armed = self.deadline();
        mem::swap(&mut self.worker, waker);
        Work::Wait(self.armed)
    }

    /// Returns the next urgent task.
    pub(crate) fn urgent_work(&mut self) -> Option<Urgent> {
        if let Some(interruption) = self.interrupt.take() {
            return Some(Urgent::Interrupt(interruption));
        }
        self.waiters.take_evicted(BATCH).map(Urgent::Wake)
    }

    /// Returns whether the attempt with number `id` was cancelled and must therefore be dropped.
    pub(crate) fn is_cancelled(&self, id: u64) -> bool {
        self.attempts.is_cancelled(id)
    }

    /// Makes the worker open a socket, if the pool was never ready. Does nothing behind a load
    /// balancer, where selections do not wait for checks.
    pub(crate) fn prepare(&mut self) {
        let is_new = matches!(self.state, State::Paused(None)) && self.early == Early::None;
        if is_new && !self.config.by_caller && !self.config.load_balanced {
            self.early = Early::Wanted;
            self.wake_worker();
        }
    }

    /// Keeps the socket that was opened, or forgets it if it could not be opened.
    pub(crate) fn dialed_early(&mut self, is_open: bool, now: Instant) {
        if self.early == Early::Dialing {
            self.early = if is_open { Early::Open(now + UNUSED) } else { Early::None };
        }
    }

    /// Shuts the pool down because its worker was dropped with its runtime.
    pub(crate) fn runtime_shut_down(&mut self) {
        if !matches!(self.state, State::Closed) {
            self.state = State::RuntimeShutDown;
            self.close_idle(ConnectionClosedReason::PoolClosed);
        }
        // Check-outs that were evicted when the pool was closed also fail now, if the worker has
        // not woken them.
        self.after.wake.extend(self.waiters.fail_all(&self.lost()));
    }

    /// Polls a waiting check-out. If it keeps waiting, swaps `waker` with the waker that is stored
    /// for the check-out.
    pub(crate) fn poll(
        &mut self,
        ticket: Ticket,
        now: Instant,
        waker: &mut Option<Waker>,
    ) -> Poll<Step<C>> {
        self.take_back(ticket, now);
        if let Poll::Ready(result) = self.waiters.poll(ticket, waker) {
            return Poll::Ready(Step::Done(self.accept(result)));
        }
        let Some(id) = self.begin_own(ticket) else {
            return Poll::Pending;
        };
        // Until the check-out is polled again, it cannot take another connection.
        *waker = self.waiters.wake(ticket);
        self.pass_turn();
        Poll::Ready(Step::Open(id))
    }

    /// Takes the worker's waker when the pool is dropped.
    pub(crate) fn take_worker(&mut self) -> Option<Waker> {
        self.worker.take()
    }

    /// Fails a check-out that timed out, unless a connection is being opened for it; in that case,
    /// `connectTimeoutMS` applies (CMAP: "waitQueueTimeoutMS").
    pub(crate) fn time_out(&mut self, ticket: Ticket) -> Option<Result<C, Error>> {
        if self.waiters.is_owner(ticket) {
            self.waiters.set_overdue(ticket);
            return None;
        }
        Some(self.end(ticket))
    }

    /// Fails a check-out whose operation timed out. If a connection is being opened for it, the
    /// connection goes to the next check-out.
    pub(crate) fn expire(&mut self, ticket: Ticket) -> Result<C, Error> {
        self.disown(ticket);
        self.end(ticket)
    }

    /// Ends a check-out that timed out. If a connection was handed over just before, the check-out
    /// succeeds.
    fn end(&mut self, ticket: Ticket) -> Result<C, Error> {
        let result = match self.waiters.take(ticket) {
            Some(result) => self.accept(result),
            None => Err(self.timed_out()),
        };
        self.pass_turn();
        result
    }

    /// Passes the attempt of a check-out, if it owns one, to the next check-out.
    fn disown(&mut self, ticket: Ticket) {
        if self.waiters.is_owner(ticket) {
            let next = self.next_owner();
            self.attempts.replace_owner(ticket, next);
        }
    }

    /// Takes back a connection whose service was cleared since its delivery. The check-out gets an
    /// idle connection, or returns to its place in the queue.
    fn take_back(&mut self, ticket: Ticket, now: Instant) {
        let delivered = self.waiters.delivered(ticket);
        if !delivered.is_some_and(|connection| self.has_lost_service(connection)) {
            return;
        }
        if let Some(connection) = self.waiters.rejoin(ticket) {
            self.in_use -= 1;
            self.settle(connection, Instant::EPOCH);
        }
        // Idle connections exist only if no other check-out waits.
        if let Some(Idle { connection, .. }) = self.next_idle(now)
            && let Some(first) = self.waiters.next()
        {
            self.after.wake.extend(self.waiters.deliver(first, connection));
        }
    }

    /// Refuses a connection that became stale between its delivery and the poll of the check-out.
    fn accept(&mut self, result: Result<C, Error>) -> Result<C, Error> {
        let connection = result?;
        if !matches!(self.state, State::Closed) && !self.is_stale(&connection) {
            return Ok(connection);
        }
        self.in_use -= 1;
        // A poll takes back a connection to a cleared service, so this check-out must have timed
        // out instead of being polled.
        let is_late = self.has_lost_service(&connection);
        self.settle(connection, Instant::EPOCH);
        Err(if is_late { self.timed_out() } else { self.lost() })
    }

    /// Removes a check-out that was dropped. A connection handed to it goes to the next check-out.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Instant) {
        self.disown(ticket);
        if let Some(Ok(connection)) = self.waiters.take(ticket) {
            self.in_use -= 1;
            self.settle(connection, now);
        } else {
            self.pass_turn();
        }
    }

    pub(super) fn timed_out(&self) -> Error {
        let address = &self.config.address;
        if !self.config.load_balanced {
            return Error::wait_queue_timeout(address);
        }
        let (cursors, transactions) = (self.pinned.cursors, self.pinned.transactions);
        let in_use = u32::try_from(self.in_use).unwrap_or(u32::MAX);
        let others = in_use.saturating_sub(cursors + transactions);
        let max_pool_size = self.config.options.max_pool_size;
        Error::wait_queue_timeout_pinned(address, max_pool_size, cursors, transactions, others)
    }

    /// Closes the idle connections that have not been used for `maxIdleTimeMS`.
    fn close_expired(&mut self, now: Instant) {
        let expired = |idle: &&Idle<C>| self.is_expired(idle.since, now);
        let count = self.idle.iter().take_while(expired).count();
        if count > 0 {
            let rest = self.idle.split_off(count);
            self.close_idle(ConnectionClosedReason::Idle);
            self.idle = rest;
        }
    }

    /// Closes the idle connections to cleared services.
    fn close_idle_to_cleared_services(&mut self) {
        if !self.services.take_cleared() {
            return;
        }
        let idle = mem::take(&mut self.idle);
        let (stale, rest) = idle.into_iter().partition(|idle| self.is_stale(&idle.connection));
        self.idle = stale;
        self.close_idle(ConnectionClosedReason::Stale);
        self.idle = rest;
    }

    pub(crate) fn take_to_close(&mut self) -> Option<(Vec<C>, Option<ConnectionClosedReason>)> {
        let batch = self.to_close.last_mut()?;
        let count = batch.connections.len().min(BATCH);
        let connections: Vec<_> = batch.connections.drain(..count).collect();
        let reason = batch.reason;
        if batch.connections.is_empty() {
            self.to_close.pop();
        }
        let connections = connections.into_iter().map(|idle| idle.connection).collect();
        Some((connections, reason))
    }

    /// Returns the time of the worker's next task, unless an event causes an earlier task.
    fn deadline(&self) -> Option<Instant> {
        let limit = self.config.options.max_idle_time;
        let oldest = self.idle.front().map(|idle| idle.since);
        let expiry = oldest.zip(limit).map(|(since, limit)| since + limit);
        [expiry, self.fill_due(), self.early.expiry()].into_iter().flatten().min()
    }
}
