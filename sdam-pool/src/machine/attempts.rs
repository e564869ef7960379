//! The attempts to open connections (CMAP: "maxConnecting").

use std::{mem, time::Duration};

use sdam_core::{error::Error, time::Instant};

use super::{Machine, Pooled, State, Ticket};

/// The pause after the first failed attempt for `minPoolSize`. The pause doubles with each further
/// failure.
const FILL_PAUSE: Duration = Duration::from_millis(500);
/// The maximum pause after a failed attempt for `minPoolSize`, equal to the default
/// `heartbeatFrequencyMS`.
const MAX_FILL_PAUSE: Duration = Duration::from_secs(10);

/// The attempts in progress.
#[derive(Debug)]
pub(super) struct Attempts {
    pending: Vec<Attempt>,
    has_cancelled: bool,
    /// `maxConnecting`.
    limit: usize,
    /// The number of attempts begun so far, which is also the id of the newest connection.
    begun: u64,
}

/// An attempt to open a connection.
#[derive(Debug)]
struct Attempt {
    /// The driver's connection id.
    id: u64,
    /// The check-out that fails if the attempt fails.
    owner: Option<Ticket>,
    is_cancelled: bool,
}

/// The reason why an attempt ended without a connection.
#[derive(Debug)]
pub(crate) enum AttemptFailure {
    /// The connection could not be established.
    Failed(Error),
    /// A clear interrupted the attempt, or the pool was closed.
    Cancelled,
    /// The check-out that made the attempt was dropped.
    Dropped,
}

impl Attempts {
    pub(super) fn new(limit: usize) -> Self {
        Self { pending: Vec::new(), has_cancelled: false, limit, begun: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the check-outs that own an attempt.
    pub(super) fn owners(&self) -> impl Iterator<Item = Ticket> {
        self.pending.iter().filter_map(|attempt| attempt.owner)
    }

    /// Returns whether an attempt without an owner is in progress.
    fn has_unowned(&self) -> bool {
        let mut attempts = self.pending.iter();
        attempts.any(|attempt| attempt.owner.is_none() && !attempt.is_cancelled)
    }

    /// Returns the check-out that has waited longest among those that own an attempt and are
    /// `eligible`.
    pub(super) fn oldest_owner(&self, eligible: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        self.owners().filter(eligible).min_by_key(|owner| owner.serial)
    }

    /// Passes the attempt of `owner` to another check-out.
    pub(super) fn replace_owner(&mut self, owner: Ticket, next: Option<Ticket>) {
        let mut attempts = self.pending.iter_mut();
        if let Some(attempt) = attempts.find(|attempt| attempt.owner == Some(owner)) {
            attempt.owner = next;
        }
    }

    /// Marks all attempts as cancelled.
    pub(super) fn cancel(&mut self) {
        self.has_cancelled = !self.pending.is_empty();
        for attempt in &mut self.pending {
            attempt.is_cancelled = true;
        }
    }

    /// Returns whether attempts were cancelled since the last call.
    pub(super) fn take_cancelled(&mut self) -> bool {
        mem::take(&mut self.has_cancelled)
    }

    /// Returns whether the attempt with number `id` was cancelled and must therefore be dropped.
    pub(super) fn is_cancelled(&self, id: u64) -> bool {
        let mut attempts = self.pending.iter();
        attempts.any(|attempt| attempt.id == id && attempt.is_cancelled)
    }

    fn begin(&mut self, owner: Option<Ticket>) -> u64 {
        self.begun += 1;
        self.pending.push(Attempt { id: self.begun, owner, is_cancelled: false });
        self.begun
    }

    fn end(&mut self, id: u64) -> Option<Attempt> {
        let index = self.pending.iter().position(|attempt| attempt.id == id)?;
        Some(self.pending.remove(index))
    }
}

impl<C: Pooled> Machine<C> {
    /// Begins an attempt if a check-out or `minPoolSize` needs one and the limits allow it. Returns
    /// the connection id.
    pub(super) fn begin_attempt(&mut self, now: Instant) -> Option<u64> {
        if self.config.by_caller || !self.may_attempt() {
            return None;
        }
        // A check-out gets its own attempt even if attempts without an owner are in progress,
        // because the latter may take longer (CMAP: "Checking Out a Connection").
        let owner = self.waiters.next();
        if owner.is_none() && !self.fills(now) {
            return None;
        }
        Some(self.attempts.begin(owner))
    }

    /// Begins an attempt that the check-out `ticket` makes itself.
    pub(crate) fn begin_own(&mut self, ticket: Ticket) -> Option<u64> {
        if !self.config.by_caller || !self.may_attempt() || self.waiters.first() != Some(ticket) {
            return None;
        }
        let owner = self.waiters.next();
        Some(self.attempts.begin(owner))
    }

    /// Adds the connection that an attempt has established.
    pub(crate) fn established(&mut self, id: u64, connection: C, now: Instant) {
        let Some(Attempt { owner, .. }) = self.attempts.end(id) else {
            return;
        };
        self.opened += 1;
        self.fill_failures = 0;
        if let Some(service) = connection.service() {
            self.services.opened(service);
        }
        let is_current = matches!(self.state, State::Ready) && !self.is_stale(&connection);
        match owner {
            Some(owner) if self.has_lost_service(&connection) => {
                self.settle(connection, now);
                self.wait_again(owner);
            }
            // The pool was cleared in the meantime, so this check-out fails like those in the
            // queue.
            Some(owner) if !is_current => {
                self.fail(owner, self.lost());
                self.settle(connection, now);
            }
            Some(owner) => self.swap_owner(owner, connection, now),
            None => self.settle(connection, now),
        }
        self.attempt_ended();
    }

    /// Ends an attempt that failed.
    pub(crate) fn failed(&mut self, id: u64, failure: AttemptFailure, now: Instant) {
        let Some(Attempt { owner, .. }) = self.attempts.end(id) else {
            return;
        };
        match (failure, owner) {
            (AttemptFailure::Failed(error), Some(owner)) => self.fail(owner, error),
            (AttemptFailure::Cancelled, Some(owner)) => self.fail(owner, self.interrupted()),
            (AttemptFailure::Failed(_), None) => {
                let pause = FILL_PAUSE * 2_u32.saturating_pow(self.fill_failures.min(8));
                self.fill_failures += 1;
                self.fill_at = Some(now + pause.min(MAX_FILL_PAUSE));
            }
            (AttemptFailure::Cancelled, None) | (AttemptFailure::Dropped, _) => {}
        }
        self.attempt_ended();
    }

    /// Wakes the task that begins the next attempt, if one is needed and allowed.
    pub(super) fn start_attempts(&mut self) {
        if !self.may_attempt() {
            return;
        }
        if self.config.by_caller {
            if let Some(first) = self.waiters.first() {
                self.after.wake.extend(self.waiters.wake(first));
            }
        } else if self.waiters.len() > 0 || self.is_short() {
            self.wake_worker();
        }
    }

    /// Cancels all attempts. Without a worker, check-outs make the attempts, so these check-outs
    /// fail, too.
    pub(super) fn cancel_attempts(&mut self) {
        self.attempts.cancel();
        if self.config.by_caller {
            let owners: Vec<_> = self.attempts.owners().collect();
            for owner in owners {
                self.fail(owner, self.interrupted());
            }
        }
    }

    /// Wakes the next check-out after one has left the queue, so that it begins its own attempt.
    /// Does nothing if there is a worker.
    pub(super) fn pass_turn(&mut self) {
        if self.config.by_caller {
            self.start_attempts();
        }
    }

    /// Returns the check-out that takes over an attempt from its owner. Without a worker, an
    /// attempt ends with its check-out.
    pub(super) fn next_owner(&mut self) -> Option<Ticket> {
        if self.config.by_caller {
            return None;
        }
        self.waiters.next()
    }

    /// Returns the earliest time at which the next attempt for `minPoolSize` may begin.
    pub(super) fn fill_due(&self) -> Option<Instant> {
        let may_fill = self.may_attempt() && self.is_short();
        self.fill_at.filter(|_| may_fill)
    }

    /// Hands the connection to the check-out that has waited longest among those that own an
    /// attempt, and passes the attempt of that check-out to `owner`.
    fn swap_owner(&mut self, owner: Ticket, connection: C, now: Instant) {
        if !connection.is_usable() {
            self.fail(owner, self.interrupted());
            self.settle(connection, now);
            return;
        }
        // Without a worker, a check-out that receives a connection drops its own attempt.
        let may_swap = |one: &Ticket| one.serial < owner.serial && !self.config.by_caller;
        let first = self.attempts.oldest_owner(may_swap);
        if let Some(first) = first {
            self.attempts.replace_owner(first, Some(owner));
        }
        self.in_use += 1;
        let waker = self.waiters.deliver(first.unwrap_or(owner), connection);
        self.after.wake.extend(waker);
    }

    fn attempt_ended(&mut self) {
        if self.attempts.is_empty() {
            self.services.prune();
        }
        self.start_attempts();
    }

    /// Puts the owner of an ended attempt back into the queue, or fails the owner if it is overdue.
    fn wait_again(&mut self, owner: Ticket) {
        if self.waiters.is_overdue(owner) {
            let error = self.timed_out();
            self.fail(owner, error);
        } else {
            self.waiters.rejoin(owner);
        }
    }

    fn fail(&mut self, owner: Ticket, error: Error) {
        self.after.wake.extend(self.waiters.fail(owner, error));
    }

    /// Returns whether the limits of the pool allow one more attempt.
    fn may_attempt(&self) -> bool {
        let max = match self.config.options.max_pool_size {
            0 => usize::MAX,
            max => max as usize,
        };
        matches!(self.state, State::Ready)
            && self.attempts.len() < self.attempts.limit
            && self.total() < max
    }

    fn fills(&self, now: Instant) -> bool {
        self.is_short() && self.fill_at.is_none_or(|at| at <= now)
    }

    /// Returns whether `minPoolSize` needs one more attempt. Such attempts run one at a time, as in
    /// CMAP's single background thread, and leave the rest of `maxConnecting` to check-outs.
    fn is_short(&self) -> bool {
        self.total() < self.min_size() && !self.attempts.has_unowned()
    }

    fn min_size(&self) -> usize {
        if self.config.by_caller {
            return 0;
        }
        self.config.options.min_pool_size as usize
    }

    /// Returns the error for a check-out whose connection is stale.
    pub(super) fn lost(&self) -> Error {
        match self.state {
            State::RuntimeShutDown => self.eviction(),
            _ => self.waiters.eviction().unwrap_or_else(|| self.eviction()),
        }
    }

    /// Returns the error for a check-out whose attempt was cancelled.
    fn interrupted(&self) -> Error {
        match self.state {
            State::Closed | State::RuntimeShutDown => self.lost(),
            State::Paused(_) | State::Ready => Error::interrupted(&self.config.address),
        }
    }
}
