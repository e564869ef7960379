use std::{collections::VecDeque, mem};

use super::{Event, EventQueue, Stopped};

/// The exclusive right to deliver events, and the events taken from the queue so far.
///
/// When the batch is dropped, undelivered events return to the front of the queue, so dropping a
/// dispatcher loses no event.
#[derive(Debug)]
pub(crate) struct Batch<'q> {
    queue: &'q EventQueue,
    events: VecDeque<Event>,
}

impl EventQueue {
    /// Takes the right to deliver; `None` while another consumer has it.
    pub(crate) fn take_batch(&self) -> Option<Batch<'_>> {
        let events = self.lock().batch.take()?;
        Some(Batch { queue: self, events })
    }
}

impl Batch<'_> {
    /// Returns the next event, or the reason why there is none. The lock is taken once for all
    /// events that have accumulated.
    pub(crate) fn next(&mut self) -> Result<&Event, Stopped> {
        if self.events.is_empty() {
            let mut state = self.queue.lock();
            // Both buffers keep their capacity, so steady traffic allocates nothing.
            mem::swap(&mut self.events, &mut state.buffer);
            if self.events.is_empty() && state.closed {
                return Err(Stopped::Closed);
            }
        }
        self.events.front().ok_or(Stopped::Empty)
    }

    /// Removes the event that [`next`](Self::next) has returned.
    pub(crate) fn delivered(&mut self) {
        self.queue.forget(&self.events.pop_front());
    }

    /// Discards all taken events.
    pub(crate) fn discard(&mut self) {
        self.queue.forget(&self.events);
        self.events.clear();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let more = state.closed || !self.events.is_empty() || !state.buffer.is_empty();
        state.batch = Some(mem::take(&mut self.events));
        drop(state);
        // Wakes a dispatcher that found the batch taken or has used up its budget.
        if more {
            self.queue.waker.wake();
        }
    }
}
