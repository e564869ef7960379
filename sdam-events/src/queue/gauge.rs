use crate::sync::atomic::{AtomicUsize, Ordering};

/// The difference between two counters, each of which has only one writer at a time: producers add
/// under the lock, and the consumer subtracts. Neither counter therefore needs an atomic
/// read-modify-write operation, which would cost a producer several times as much as a load and a
/// store.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    added: AtomicUsize,
    subtracted: AtomicUsize,
}

impl Gauge {
    /// Adds to the difference. Called under the lock of the queue.
    pub(super) fn add(&self, count: usize) {
        advance(&self.added, count);
    }

    /// Subtracts a number that is known to have been added. Called by the consumer.
    pub(super) fn subtract(&self, count: usize) {
        advance(&self.subtracted, count);
    }

    /// Returns the difference, or zero if the reader sees a subtraction before the addition that
    /// preceded it.
    pub(super) fn get(&self) -> usize {
        let subtracted = self.subtracted.load(Ordering::Relaxed);
        let difference = self.added.load(Ordering::Relaxed).wrapping_sub(subtracted);
        if difference > usize::MAX / 2 { 0 } else { difference }
    }
}

/// Advances a counter, which wraps around. No other thread may write it at the same time.
fn advance(counter: &AtomicUsize, count: usize) {
    let value = counter.load(Ordering::Relaxed);
    counter.store(value.wrapping_add(count), Ordering::Relaxed);
}
