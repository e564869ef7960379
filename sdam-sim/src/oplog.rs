//! The optimes of a member's writes.

use std::{collections::VecDeque, time::Duration};

use sdam_core::time::Instant;

/// The position of a write in the history of a set. Positions are ordered by term, and then by
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpTime {
    pub(crate) term: i64,
    /// Seconds since the Unix epoch.
    pub(crate) seconds: u32,
    /// The number of the write within its second, starting at 1.
    pub(crate) increment: u32,
}

/// One write, and its date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) time: OpTime,
    pub(crate) at: Instant,
    /// Milliseconds since the Unix epoch (`lastWriteDate`).
    pub(crate) date: i64,
}

/// The optimes of a member's latest writes. The documents are in the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oplog {
    entries: VecDeque<Entry>,
}

impl Oplog {
    /// Returns the last write.
    pub(crate) fn last(&self) -> Entry {
        self.entries.back().copied().unwrap_or_default()
    }

    /// Adds an entry at `at`, with the wall clock time `date`. Drops entries that are so old that
    /// even a member with a lag of `retain` has replicated them.
    pub(crate) fn write(&mut self, term: i64, at: Instant, date: i64, retain: Duration) {
        let last = self.last().time;
        let seconds = u32::try_from(date.div_euclid(1000)).unwrap_or(0);
        let increment = if seconds <= last.seconds { last.increment + 1 } else { 1 };
        let time = OpTime { term, seconds: seconds.max(last.seconds), increment };
        self.entries.push_back(Entry { time, at, date });
        while self.entries.get(1).is_some_and(|second| second.at + retain < at) {
            self.entries.pop_front();
        }
    }

    /// Copies the entries that `source` had at `until`, and drops entries that `source` does not
    /// have (rollback).
    pub(crate) fn follow(&mut self, source: &Self, until: Instant) {
        let seen = source.entries.iter().filter(|entry| entry.at <= until);
        let (newest, last) = (seen.clone().next_back(), self.last().time);
        if newest.is_some_and(|newest| newest.time > last) || last > source.last().time {
            self.entries = seen.copied().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seconds: impl IntoIterator<Item = u64>) -> Oplog {
        let mut oplog = Oplog::default();
        for second in seconds {
            let at = Instant::from_millis(second * 1000);
            oplog.write(1, at, second as i64 * 1000, Duration::from_secs(5));
        }
        oplog
    }

    #[test]
    fn a_secondary_replicates_writes_up_to_its_time() {
        let source = written(0..10);
        let mut follower = Oplog::default();
        follower.follow(&source, Instant::from_millis(7500));
        assert_eq!(follower.last().date, 7000);
        follower.follow(&source, Instant::from_millis(6500));
        assert_eq!(follower.last().date, 7000, "time is monotonic");
    }

    #[test]
    fn entries_missing_from_the_source_are_rolled_back() {
        let source = written(0..3);
        let mut follower = written(0..9);
        follower.follow(&source, Instant::from_millis(9000));
        assert_eq!(follower.last(), source.last());
    }

    #[test]
    fn the_oplog_keeps_only_what_a_delayed_member_needs() {
        let oplog = written(0..1000);
        assert_eq!(oplog.entries.len(), 7);
    }

    #[test]
    fn writes_within_one_second_get_increments() {
        let mut oplog = written([4]);
        oplog.write(1, Instant::from_millis(4500), 4500, Duration::ZERO);
        assert_eq!(oplog.last().time.increment, 2);
        assert_eq!(oplog.last().date, 4500);
    }
}
