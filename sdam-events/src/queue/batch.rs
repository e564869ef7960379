use std::{collections::VecDeque, mem};

use super::{Event, EventQueue, Queued, total};

/// The right to deliver, and the events taken so far.
///
/// Events that were taken and not delivered go back when it is dropped, ahead of all others, so
/// nothing is lost when a dispatcher is.
#[derive(Debug)]
pub(crate) struct Batch<'q> {
    queue: &'q EventQueue,
    events: VecDeque<Queued>,
    /// What the event takes that was handed out last, and is not delivered yet.
    bytes: usize,
}

impl EventQueue {
    /// The right to deliver; `None` while somebody else has it.
    pub(crate) fn take_batch(&self) -> Option<Batch<'_>> {
        let events = self.lock().batch.take()?;
        Some(Batch {
            queue: self,
            events,
            bytes: 0,
        })
    }
}

impl Batch<'_> {
    /// The next event. The lock is taken once for all events that have gathered.
    pub(crate) fn next(&mut self) -> Next {
        if let Some(queued) = self.events.pop_front() {
            return self.hand_out(queued);
        }
        let mut state = self.queue.lock();
        // Both buffers keep their capacity, so steady traffic allocates nothing.
        mem::swap(&mut self.events, &mut state.buffer);
        match self.events.pop_front() {
            Some(queued) => {
                drop(state);
                self.hand_out(queued)
            }
            None if state.closed => Next::Closed,
            None => Next::Empty,
        }
    }

    fn hand_out(&mut self, queued: Queued) -> Next {
        self.bytes = queued.bytes;
        Next::Event(queued.event)
    }

    /// The event that was handed out last has been delivered.
    pub(crate) fn delivered(&mut self) {
        self.queue.forget(1, mem::take(&mut self.bytes));
    }

    /// Drops what has been taken.
    pub(crate) fn discard(&mut self) {
        self.queue.forget(self.events.len(), total(&self.events));
        self.events.clear();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let more = state.closed || !self.events.is_empty() || !state.buffer.is_empty();
        state.batch = Some(mem::take(&mut self.events));
        drop(state);
        // A dispatcher that found the right taken waits for this; whoever ran out of budget, too.
        if more {
            self.queue.waker.wake();
        }
    }
}

/// What a [`Batch`] had to give.
pub(crate) enum Next {
    Event(Event),
    /// Nothing now, maybe later.
    Empty,
    /// Nothing any more.
    Closed,
}
