//! Counts heartbeats and operations under way, so that the queue is not closed before they have
//! ended.

use sdam_core::event::EventName as Name;

use crate::sink::Interest;

/// The kinds of operations that are counted, heartbeats first. Each kind has the event that begins
/// an operation, and the set of all events of such an operation.
const COUNTED: [(Name, Interest); 4] = [
    (Name::ServerHeartbeatStarted, Interest::HEARTBEATS),
    (Name::ConnectionCreated, Interest::of(&[Name::ConnectionCreated, Name::ConnectionClosed])),
    (
        Name::ConnectionCheckOutStarted,
        Interest::CHECK_OUTS.without(Interest::of(&[Name::ConnectionCheckedIn])),
    ),
    (Name::CommandStarted, Interest::COMMANDS),
];

/// The numbers of heartbeats and operations under way for which the sink receives both start and
/// end.
///
/// Operations that were shed are counted as well: an end event does not show whether the matching
/// start was shed, so the count would otherwise reach zero too early.
#[derive(Debug, Default)]
pub(super) struct UnderWay([usize; COUNTED.len()]);

impl UnderWay {
    /// Counts an event called `name`, if the sink's `interest` covers all events of that kind.
    pub(super) fn count(&mut self, name: Name, interest: Interest) {
        for ((begin, whole), count) in COUNTED.into_iter().zip(&mut self.0) {
            if whole.contains(name) && interest.contains_all(whole) {
                *count = if name == begin { *count + 1 } else { count.saturating_sub(1) };
            }
        }
    }

    pub(super) fn end_heartbeats(&mut self) {
        self.0[0] = 0;
    }

    pub(super) fn total(&self) -> usize {
        self.0.iter().sum()
    }
}
