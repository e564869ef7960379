//! Levels of detail, which are summaries of a lane that are shown when the page is zoomed out.
//!
//! A level divides the span of the recording into equal buckets, whose number is a power of two. A
//! bucket holds the number of heartbeats, the range of the round-trip times, and the worst state,
//! so that even the shortest loss is visible at every zoom level. Empty buckets are omitted.

use super::{
    columns::Column,
    row::Kind,
    timeline::{Lane, Row, State},
};

/// The base-2 logarithm of each level's number of buckets. The first level has more buckets than a
/// screen has pixels.
const BITS: [u32; 3] = [12, 14, 16];

/// A summary of one part of the recorded time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) index: u64,
    pub(super) heartbeats: u64,
    pub(super) failed: u64,
    pub(super) clears: u64,
    /// The range of the round-trip times in nanoseconds. Both are zero if none was measured.
    pub(super) fastest: u64,
    pub(super) slowest: u64,
    pub(super) worst: Option<State>,
    /// The state at the end of the bucket.
    pub(super) last: Option<State>,
}

/// Returns the levels of a lane with too many events to draw individually, or none for other lanes.
pub(super) fn levels(lane: &Lane, rows: &[&Row], span: u64) -> Vec<(u32, Vec<Bucket>)> {
    let events = rows.len() + lane.bands.len();
    let bits = BITS.iter().filter(|bits| events > 1 << (*bits - 1));
    bits.map(|bits| (*bits, buckets(lane, rows, span, *bits))).collect()
}

/// Returns the buckets of one level, in order.
pub(super) fn buckets(lane: &Lane, rows: &[&Row], span: u64, bits: u32) -> Vec<Bucket> {
    let count = 1_u64 << bits;
    let index_of = |at: u64| {
        let index = u128::from(at) * u128::from(count) / u128::from(span.max(1));
        u64::try_from(index).unwrap_or(u64::MAX).min(count - 1)
    };
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut bands = lane.bands.iter().peekable();
    let mut state = None;
    let mut rows = rows.iter().peekable();
    loop {
        let next = [bands.peek().map(|it| it.from), rows.peek().map(|it| it.at)];
        let Some(at) = next.into_iter().flatten().min() else {
            return buckets;
        };
        let index = index_of(at);
        if buckets.last().is_none_or(|last| last.index != index) {
            buckets.push(Bucket { index, worst: state, last: state, ..Bucket::default() });
        }
        let Some(bucket) = buckets.last_mut() else {
            return buckets;
        };
        while let Some(band) = bands.next_if(|band| index_of(band.from) == index) {
            state = Some(band.state);
            bucket.worst = bucket.worst.max(state);
            bucket.last = state;
        }
        while let Some(row) = rows.next_if(|row| index_of(row.at) == index) {
            bucket.add(row);
        }
    }
}

impl Bucket {
    fn add(&mut self, row: &Row) {
        match row.kind {
            Kind::Heartbeat => self.heartbeats += 1,
            Kind::HeartbeatFailed => self.failed += 1,
            Kind::PoolCleared => self.clears += 1,
            _ => {}
        }
        if let Some(rtt) = row.rtt {
            self.slowest = self.slowest.max(rtt);
            self.fastest = match self.fastest {
                0 => rtt,
                fastest => fastest.min(rtt),
            };
        }
    }
}

/// Encodes the buckets as a column, with 8 numbers for each bucket.
pub(super) fn encode(buckets: &[Bucket]) -> String {
    let mut column = Column::default();
    let mut previous = 0;
    let code = |state: Option<State>| state.unwrap_or(State::Absent) as u64;
    for bucket in buckets {
        column.push(bucket.index - previous);
        previous = bucket.index;
        column.extend([
            bucket.heartbeats,
            bucket.failed,
            bucket.clears,
            bucket.fastest.div_ceil(1000),
            bucket.slowest.div_ceil(1000),
            code(bucket.worst),
            code(bucket.last),
        ]);
    }
    column.encode()
}
