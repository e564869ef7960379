//! The queue of records for the collector. It is bounded, so memory does not grow while a collector
//! is down.

use std::sync::{Mutex, MutexGuard, PoisonError};

use opentelemetry_proto::tonic::{logs::v1::LogRecord, trace::v1::Span};
use tokio::sync::Notify;

/// The maximum number of queued log records, and also of queued spans. The oldest are dropped
/// first.
const CAPACITY: usize = 2048;

/// Log records and spans in the order of their events.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    logs: Waiting<LogRecord>,
    spans: Waiting<Span>,
}

/// The queued records of one kind.
struct Waiting<T> {
    records: Vec<T>,
    /// The total number of records that have left the queue.
    left: u64,
    /// The number of these records that were dropped because the queue was full.
    lost: u64,
}

/// A copy of the queued records, and their position in the queue.
pub(super) struct Batch<T> {
    pub(super) records: Vec<T>,
    from: u64,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { records: Vec::new(), left: 0, lost: 0 }
    }
}

impl<T: Clone> Waiting<T> {
    fn add(&mut self, records: impl IntoIterator<Item = T>) {
        self.records.extend(records);
        let over = self.records.len().saturating_sub(CAPACITY);
        self.records.drain(..over);
        self.left += over as u64;
        self.lost += over as u64;
    }

    fn batch(&self) -> Batch<T> {
        Batch { records: self.records.clone(), from: self.left }
    }

    /// Removes a batch. Some of its records may have been dropped in the meantime.
    fn remove(&mut self, batch: &Batch<T>) {
        let end = batch.from + batch.records.len() as u64;
        let sent = end.saturating_sub(self.left);
        self.records.drain(..(sent as usize).min(self.records.len()));
        self.left += sent;
    }
}

impl Queue {
    pub(super) fn logs(&self, records: impl IntoIterator<Item = LogRecord>) {
        self.lock().logs.add(records);
        self.filled.notify_one();
    }

    pub(super) fn spans(&self, records: impl IntoIterator<Item = Span>) {
        self.lock().spans.add(records);
        self.filled.notify_one();
    }

    /// Waits until the queue contains a record.
    pub(super) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.logs.records.is_empty() && state.spans.records.is_empty()
    }

    pub(super) fn waiting_logs(&self) -> Batch<LogRecord> {
        self.lock().logs.batch()
    }

    pub(super) fn waiting_spans(&self) -> Batch<Span> {
        self.lock().spans.batch()
    }

    /// Removes log records that the collector has received.
    pub(super) fn logs_sent(&self, batch: &Batch<LogRecord>) {
        self.lock().logs.remove(batch);
    }

    /// Removes spans that the collector has received.
    pub(super) fn spans_sent(&self, batch: &Batch<Span>) {
        self.lock().spans.remove(batch);
    }

    /// Returns the number of records dropped since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        let mut state = self.lock();
        std::mem::take(&mut state.logs.lost) + std::mem::take(&mut state.spans.lost)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_records_make_room_even_while_they_are_sent() {
        let mut waiting = Waiting::default();
        waiting.add(0..3);
        let batch = waiting.batch();
        assert_eq!(batch.records, [0, 1, 2]);
        waiting.add([3]);
        waiting.remove(&batch);
        assert_eq!(waiting.records, [3]);

        let batch = waiting.batch();
        waiting.add(4..CAPACITY + 5);
        assert_eq!(waiting.records.len(), CAPACITY);
        assert_eq!((waiting.records[0], waiting.lost), (5, 2));
        waiting.remove(&batch);
        assert_eq!(waiting.records.len(), CAPACITY);
    }
}
