//! The wait queue of check-outs (CMAP: "WaitQueue").

use std::{
    collections::BTreeSet,
    mem,
    task::{Poll, Waker},
};

use sdam_core::error::Error;
use slab::Slab;

/// The waiting check-outs, served in order of arrival.
///
/// A check-out keeps its slot until it has taken its result or is dropped. While it waits, its
/// ticket is in the queue, or it owns an attempt to open a connection.
#[derive(Debug)]
pub(super) struct Waiters<C> {
    pub(super) slots: Slab<Slot<C>>,
    /// The tickets of check-outs that own no attempt, oldest first.
    queue: BTreeSet<Ticket>,
    /// The error of the last eviction, for check-outs whose tickets are no longer in the queue.
    eviction: Option<Error>,
    /// The queues of evicted check-outs that have not been woken yet. Some of these check-outs may
    /// have ended.
    evicted: Vec<BTreeSet<Ticket>>,
    tickets: u64,
}

/// The place of a check-out in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    /// The serial number, which increases with each check-out that waits.
    pub(super) serial: u64,
    slot: usize,
}

#[derive(Debug)]
pub(super) struct Slot<C> {
    serial: u64,
    state: WaiterState<C>,
    /// True if the check-out timed out while a connection was being opened for it.
    is_overdue: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum WaiterState<C> {
    Queued,
    /// The check-out owns an attempt, so a clear does not evict it.
    Owner,
    Delivered(C),
    Failed(Error),
}

impl<C> Waiters<C> {
    pub(super) fn new() -> Self {
        Self {
            slots: Slab::new(),
            queue: BTreeSet::new(),
            eviction: None,
            evicted: Vec::new(),
            tickets: 0,
        }
    }

    /// Returns the number of queued check-outs.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a check-out at the end.
    pub(super) fn join(&mut self) -> Ticket {
        self.tickets += 1;
        let slot = self.slots.insert(Slot {
            serial: self.tickets,
            state: WaiterState::Queued,
            is_overdue: false,
            waker: None,
        });
        let ticket = Ticket { slot, serial: self.tickets };
        self.queue.insert(ticket);
        ticket
    }

    /// Puts a check-out back at its place in the queue. Returns the connection that was handed to
    /// it, if any.
    pub(super) fn rejoin(&mut self, ticket: Ticket) -> Option<C> {
        let slot = self.slot(ticket)?;
        let state = mem::replace(&mut slot.state, WaiterState::Queued);
        self.queue.insert(ticket);
        match state {
            WaiterState::Delivered(connection) => Some(connection),
            WaiterState::Queued | WaiterState::Owner | WaiterState::Failed(_) => None,
        }
    }

    /// Takes the first check-out from the queue and makes it the owner of an attempt.
    pub(super) fn next(&mut self) -> Option<Ticket> {
        let ticket = self.queue.pop_first()?;
        self.slot(ticket)?.state = WaiterState::Owner;
        Some(ticket)
    }

    /// Returns the first check-out of the queue.
    pub(super) fn first(&self) -> Option<Ticket> {
        self.queue.first().copied()
    }

    /// Hands a connection to a check-out that owns an attempt.
    pub(super) fn deliver(&mut self, ticket: Ticket, connection: C) -> Option<Waker> {
        self.finish(ticket, WaiterState::Delivered(connection))
    }

    /// Fails a check-out that owns an attempt.
    pub(super) fn fail(&mut self, ticket: Ticket, error: Error) -> Option<Waker> {
        self.finish(ticket, WaiterState::Failed(error))
    }

    fn finish(&mut self, ticket: Ticket, state: WaiterState<C>) -> Option<Waker> {
        let slot = self.slot(ticket)?;
        slot.state = state;
        slot.waker.take()
    }

    /// Fails all queued check-outs. Takes constant time; [`take_evicted`](Self::take_evicted) wakes
    /// them.
    pub(super) fn evict(&mut self, error: Error) {
        self.eviction = Some(error);
        let queue = mem::take(&mut self.queue);
        if !queue.is_empty() {
            self.evicted.push(queue);
        }
    }

    /// Takes the wakers of up to `limit` evicted check-outs; returns `None` once there are no more.
    pub(super) fn take_evicted(&mut self, limit: usize) -> Option<Vec<Waker>> {
        let mut queue = self.evicted.pop()?;
        let rest = queue.iter().nth(limit).copied();
        self.evicted.extend(rest.map(|rest| queue.split_off(&rest)));
        let wakers = queue.into_iter();
        Some(wakers.filter_map(|ticket| self.slot(ticket)?.waker.take()).collect())
    }

    /// Takes the result of a check-out. If there is none yet, swaps `waker` with the waker that is
    /// stored for the check-out; the caller drops the latter after releasing the lock.
    pub(super) fn poll(
        &mut self,
        ticket: Ticket,
        waker: &mut Option<Waker>,
    ) -> Poll<Result<C, Error>> {
        let is_queued = self.queue.contains(&ticket);
        let Some(slot) = self.slot(ticket) else {
            return Poll::Pending;
        };
        let waits = match slot.state {
            WaiterState::Queued => is_queued,
            WaiterState::Owner => true,
            WaiterState::Delivered(_) | WaiterState::Failed(_) => false,
        };
        if !waits {
            return self.take(ticket).map_or(Poll::Pending, Poll::Ready);
        }
        mem::swap(&mut slot.waker, waker);
        Poll::Pending
    }

    /// Returns whether a connection is being opened for a check-out.
    pub(super) fn is_owner(&mut self, ticket: Ticket) -> bool {
        let slot = self.slot(ticket);
        slot.is_some_and(|slot| matches!(slot.state, WaiterState::Owner))
    }

    /// Returns the connection that was handed to a check-out but not yet taken.
    pub(super) fn delivered(&self, ticket: Ticket) -> Option<&C> {
        let slot = self.slots.get(ticket.slot);
        match &slot.filter(|slot| slot.serial == ticket.serial)?.state {
            WaiterState::Delivered(connection) => Some(connection),
            WaiterState::Queued | WaiterState::Owner | WaiterState::Failed(_) => None,
        }
    }

    /// Returns whether a check-out has been polled and waits to be woken.
    pub(super) fn is_polled(&self, ticket: Ticket) -> bool {
        let slot = self.slots.get(ticket.slot);
        slot.is_some_and(|slot| slot.serial == ticket.serial && slot.waker.is_some())
    }

    /// Marks a check-out as overdue.
    pub(super) fn set_overdue(&mut self, ticket: Ticket) {
        if let Some(slot) = self.slot(ticket) {
            slot.is_overdue = true;
        }
    }

    /// Returns whether a check-out is overdue.
    pub(super) fn is_overdue(&mut self, ticket: Ticket) -> bool {
        self.slot(ticket).is_some_and(|slot| slot.is_overdue)
    }

    /// Takes the waker of a check-out, so that the check-out can be woken.
    pub(super) fn wake(&mut self, ticket: Ticket) -> Option<Waker> {
        self.slot(ticket)?.waker.take()
    }

    /// Returns the error of the last eviction.
    pub(super) fn eviction(&self) -> Option<Error> {
        self.eviction.clone()
    }

    /// Fails every check-out without a result, and returns their wakers.
    pub(super) fn fail_all(&mut self, error: &Error) -> Vec<Waker> {
        self.queue.clear();
        self.evicted.clear();
        let slots = self.slots.iter_mut().map(|(_, slot)| slot);
        slots
            .filter(|slot| matches!(slot.state, WaiterState::Queued | WaiterState::Owner))
            .filter_map(|slot| {
                slot.state = WaiterState::Failed(error.clone());
                slot.waker.take()
            })
            .collect()
    }

    /// Ends a check-out. Returns its result if it has one.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Result<C, Error>> {
        self.slot(ticket)?;
        match self.slots.remove(ticket.slot).state {
            WaiterState::Delivered(connection) => Some(Ok(connection)),
            WaiterState::Failed(error) => Some(Err(error)),
            WaiterState::Owner => None,
            WaiterState::Queued if self.queue.remove(&ticket) => None,
            WaiterState::Queued => self.eviction.clone().map(Err),
        }
    }

    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot<C>> {
        let slot = self.slots.get_mut(ticket.slot);
        slot.filter(|slot| slot.serial == ticket.serial)
    }
}
