//! The queue of records for the collector. The queue is bounded, so its memory does not grow
//! without limit while the collector is down.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::{logs::v1::LogRecord, trace::v1::Span};
use tokio::sync::Notify;

use crate::lock::lock;

/// The maximum number of records in each queue. If a queue is full, its oldest records are dropped.
const CAPACITY: usize = 2048;

/// The queues of log records and of spans. Clones share the same queues.
#[derive(Clone, Default)]
pub(super) struct Queues {
    pub(super) logs: Arc<Queue<LogRecord>>,
    pub(super) spans: Arc<Queue<Span>>,
}

/// The queued records of one kind, in the order of their events.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Notify,
}

struct State<T> {
    records: Vec<T>,
    /// The total number of records that have left the queue, because they were either delivered or
    /// dropped.
    left: u64,
    /// The number of records that were dropped because the queue was full, since the last call of
    /// [`Queue::take_lost`].
    lost: u64,
}

/// A copy of the queued records, and their position in the queue.
pub(super) struct Batch<T> {
    pub(super) records: Vec<T>,
    from: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = Mutex::new(State { records: Vec::new(), left: 0, lost: 0 });
        Self { state, filled: Notify::new() }
    }
}

impl<T: Clone> Queue<T> {
    pub(super) fn add(&self, records: impl IntoIterator<Item = T>) {
        let mut state = lock(&self.state);
        state.records.extend(records);
        let over = state.records.len().saturating_sub(CAPACITY);
        state.records.drain(..over);
        state.left += over as u64;
        state.lost += over as u64;
        self.filled.notify_one();
    }

    /// Waits until the queue contains a record.
    pub(super) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.state).records.is_empty()
    }

    pub(super) fn batch(&self) -> Batch<T> {
        let state = lock(&self.state);
        Batch { records: state.records.clone(), from: state.left }
    }

    /// Removes the records of a batch that has been delivered. Some of them may already have been
    /// dropped from the queue since the batch was copied.
    pub(super) fn remove(&self, batch: &Batch<T>) {
        let mut state = lock(&self.state);
        let end = batch.from + batch.records.len() as u64;
        let sent = end.saturating_sub(state.left);
        let number = (sent as usize).min(state.records.len());
        state.records.drain(..number);
        state.left += sent;
    }

    /// Returns the number of records dropped since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        std::mem::take(&mut lock(&self.state).lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_records_make_room_even_while_they_are_sent() {
        let queue = Queue::default();
        queue.add(0..3);
        let batch = queue.batch();
        assert_eq!(batch.records, [0, 1, 2]);
        queue.add([3]);
        queue.remove(&batch);
        assert_eq!(queue.batch().records, [3]);

        let batch = queue.batch();
        queue.add(4..CAPACITY + 5);
        let records = queue.batch().records;
        assert_eq!((records.len(), records[0], queue.take_lost()), (CAPACITY, 5, 2));
        queue.remove(&batch);
        assert_eq!(queue.batch().records.len(), CAPACITY);
    }
}
