//! The wait queue of check-outs (CMAP: "WaitQueue").

use std::{
    collections::VecDeque,
    mem,
    task::{Poll, Waker},
};

use sdam_core::error::Error;
use slab::Slab;

/// The number of abandoned tickets at which the queue is compacted.
const COMPACT: usize = 32;

/// The waiting check-outs, served in order of arrival.
///
/// A check-out keeps its slot until it has taken its result or is dropped. Its ticket is in the
/// queue, or it owns an attempt to open a connection.
#[derive(Debug)]
pub(super) struct Waiters<C> {
    slots: Slab<Slot<C>>,
    /// Tickets of this epoch without an attempt, oldest first, including abandoned ones.
    queue: VecDeque<Ticket>,
    abandoned: usize,
    /// Increases with each eviction. Queued check-outs of earlier epochs have failed.
    epoch: u64,
    /// The error of the last eviction.
    eviction: Option<Error>,
    /// Queues of evicted check-outs that are not yet woken.
    evicted: Vec<VecDeque<Ticket>>,
    tickets: u64,
}

/// The place of a check-out in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    slot: usize,
    /// Increases with each check-out that waits.
    pub(super) serial: u64,
}

#[derive(Debug)]
struct Slot<C> {
    serial: u64,
    epoch: u64,
    state: State<C>,
    /// True if its time ran out while a connection was being opened for it.
    is_overdue: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum State<C> {
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
            queue: VecDeque::new(),
            abandoned: 0,
            epoch: 0,
            eviction: None,
            evicted: Vec::new(),
            tickets: 0,
        }
    }

    /// Returns the number of queued check-outs.
    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.abandoned
    }

    /// Adds a check-out at the end.
    pub(super) fn join(&mut self) -> Ticket {
        self.tickets += 1;
        let slot = self.slots.insert(Slot {
            serial: self.tickets,
            epoch: self.epoch,
            state: State::Queued,
            is_overdue: false,
            waker: None,
        });
        let ticket = Ticket { slot, serial: self.tickets };
        self.queue.push_back(ticket);
        ticket
    }

    /// Returns a check-out to its place in the queue. Returns the connection that it was handed, if
    /// any.
    pub(super) fn rejoin(&mut self, ticket: Ticket) -> Option<C> {
        let epoch = self.epoch;
        let slot = self.slot(ticket)?;
        slot.epoch = epoch;
        let state = mem::replace(&mut slot.state, State::Queued);
        let earlier = |other: &Ticket| other.serial < ticket.serial;
        let place = self.queue.partition_point(earlier);
        self.queue.insert(place, ticket);
        match state {
            State::Delivered(connection) => Some(connection),
            State::Queued | State::Owner | State::Failed(_) => None,
        }
    }

    /// Takes the first check-out from the queue and makes it an owner.
    pub(super) fn next(&mut self) -> Option<Ticket> {
        while let Some(ticket) = self.queue.pop_front() {
            match self.slot(ticket) {
                Some(slot) => {
                    slot.state = State::Owner;
                    return Some(ticket);
                }
                None => self.abandoned -= 1,
            }
        }
        None
    }

    /// Returns the first check-out of the queue.
    pub(super) fn first(&mut self) -> Option<Ticket> {
        while let Some(ticket) = self.queue.front().copied() {
            if self.slot(ticket).is_some() {
                return Some(ticket);
            }
            self.queue.pop_front();
            self.abandoned -= 1;
        }
        None
    }

    /// Hands a connection to an owner.
    pub(super) fn deliver(&mut self, ticket: Ticket, connection: C) -> Option<Waker> {
        self.finish(ticket, State::Delivered(connection))
    }

    /// Fails an owner.
    pub(super) fn fail(&mut self, ticket: Ticket, error: Error) -> Option<Waker> {
        self.finish(ticket, State::Failed(error))
    }

    fn finish(&mut self, ticket: Ticket, state: State<C>) -> Option<Waker> {
        let slot = self.slot(ticket)?;
        slot.state = state;
        slot.waker.take()
    }

    /// Fails all queued check-outs. Takes constant time; [`take_evicted`](Self::take_evicted) wakes
    /// them.
    pub(super) fn evict(&mut self, error: Error) {
        self.epoch += 1;
        self.eviction = Some(error);
        self.abandoned = 0;
        let queue = mem::take(&mut self.queue);
        if !queue.is_empty() {
            self.evicted.push(queue);
        }
    }

    /// Takes the wakers of up to `limit` evicted check-outs. Returns `None` if there are no more.
    pub(super) fn take_evicted(&mut self, limit: usize) -> Option<Vec<Waker>> {
        let mut queue = self.evicted.pop()?;
        let rest = queue.split_off(limit.min(queue.len()));
        if !rest.is_empty() {
            self.evicted.push(rest);
        }
        let wakers = queue.into_iter();
        Some(wakers.filter_map(|ticket| self.slot(ticket)?.waker.take()).collect())
    }

    /// Takes the result of a check-out, or stores `waker`. `waker` is replaced by the previous one,
    /// which the caller drops after releasing the lock.
    pub(super) fn poll(
        &mut self,
        ticket: Ticket,
        waker: &mut Option<Waker>,
    ) -> Poll<Result<C, Error>> {
        let epoch = self.epoch;
        let Some(slot) = self.slot(ticket) else {
            return Poll::Pending;
        };
        let waits = match slot.state {
            State::Queued => slot.epoch == epoch,
            State::Owner => true,
            State::Delivered(_) | State::Failed(_) => false,
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
        slot.is_some_and(|slot| matches!(slot.state, State::Owner))
    }

    /// Returns the connection that was handed to a check-out but not yet taken.
    pub(super) fn delivered(&self, ticket: Ticket) -> Option<&C> {
        let slot = self.slots.get(ticket.slot);
        match &slot.filter(|slot| slot.serial == ticket.serial)?.state {
            State::Delivered(connection) => Some(connection),
            State::Queued | State::Owner | State::Failed(_) => None,
        }
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

    /// Takes the waker of a check-out.
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
        self.abandoned = 0;
        let slots = self.slots.iter_mut().map(|(_, slot)| slot);
        slots
            .filter(|slot| matches!(slot.state, State::Queued | State::Owner))
            .filter_map(|slot| {
                slot.state = State::Failed(error.clone());
                slot.waker.take()
            })
            .collect()
    }

    /// Ends a check-out. Returns its result if it has one.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Result<C, Error>> {
        self.slot(ticket)?;
        let Slot { epoch, state, .. } = self.slots.remove(ticket.slot);
        match state {
            State::Delivered(connection) => Some(Ok(connection)),
            State::Failed(error) => Some(Err(error)),
            State::Owner => None,
            State::Queued if epoch == self.epoch => {
                self.abandon();
                None
            }
            State::Queued => {
                let error = self.eviction.clone();
                error.map(Err)
            }
        }
    }

    /// Counts a ticket of the queue as abandoned. Removes the abandoned tickets once there are
    /// many.
    fn abandon(&mut self) {
        self.abandoned += 1;
        if self.abandoned > COMPACT && self.abandoned > self.queue.len() / 2 {
            let slots = &self.slots;
            self.queue.retain(|ticket| {
                let slot = slots.get(ticket.slot);
                slot.is_some_and(|slot| slot.serial == ticket.serial)
            });
            self.abandoned = 0;
        }
    }

    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot<C>> {
        let slot = self.slots.get_mut(ticket.slot);
        slot.filter(|slot| slot.serial == ticket.serial)
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }
}
