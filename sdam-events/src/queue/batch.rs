use std::{collections::VecDeque, mem};

use super::{Event, EventQueue, Queued, total};

/// The exclusive right to deliver, and the events taken so far.
///
/// Undelivered events go back to the front of the queue when the batch is dropped, so dropping a
/// dispatcher loses no event.
#[derive(Debug)]
pub(crate) struct Batch<'q> {
    queue: &'q EventQueue,
    events: VecDeque<Queued>,
    /// The size of the event that was returned last and has not been delivered yet.
    bytes: usize,
}

impl EventQueue {
    /// Takes the right to deliver; `None` while another consumer has it.
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
    /// Returns the next event. The lock is taken once for all events that have accumulated.
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

    /// Marks the event that was returned last as delivered.
    pub(crate) fn delivered(&mut self) {
        self.queue.forget(1, mem::take(&mut self.bytes));
    }

    /// Discards the events that were taken.
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
        // Wakes a dispatcher that found the batch taken or ran out of budget.
        if more {
            self.queue.waker.wake();
        }
    }
}

/// The result of [`Batch::next`].
pub(crate) enum Next {
    Event(Event),
    /// No event is queued now.
    Empty,
    /// The queue is closed and empty.
    Closed,
}
