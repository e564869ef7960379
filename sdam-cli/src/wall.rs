//! The wall-clock times of the instants of a client's clock.

use std::time::Duration;

use sdam_core::time::{Instant, UnixTime};

/// The greatest difference that does not count as a step of the wall clock.
const STEP: u64 = 250;
/// The maximum number of steps to keep. Beyond that, the times before the oldest step are
/// calculated from that step.
const MOST: usize = 1_000;

/// The relation between a client's clock and the wall clock.
///
/// The wall clock may be set at any time, and the client's clock may stop while the machine is
/// suspended. So each known pair counts until the next one that it does not predict.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walls(Vec<(Instant, UnixTime)>);

impl Walls {
    /// Adds a pair: the wall clock showed `time` at `at`.
    pub(crate) fn note(&mut self, at: Instant, time: UnixTime) {
        let Self(steps) = self;
        let later = steps.partition_point(|(known, _)| *known <= at);
        let known = later.checked_sub(1).map(|last| project(steps[last], at));
        if known.is_none_or(|known| known.as_millis().abs_diff(time.as_millis()) > STEP) {
            steps.insert(later, (at, time));
            steps.drain(..steps.len().saturating_sub(MOST));
        }
    }

    /// Returns the wall-clock time of `at`; `None` if no pair is known.
    pub(crate) fn at(&self, at: Instant) -> Option<UnixTime> {
        let Self(steps) = self;
        let later = steps.partition_point(|(known, _)| *known <= at);
        Some(project(*steps.get(later.saturating_sub(1))?, at))
    }
}

/// Returns the time at `at`, if the clocks have not been set between `pair` and `at`.
fn project((known, time): (Instant, UnixTime), at: Instant) -> UnixTime {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (after, before) = (millis(at.since(known)), millis(known.since(at)));
    UnixTime::from_millis(time.as_millis().saturating_add(after).saturating_sub(before))
}

/// Formats the time of day in UTC, as in the logs of servers.
pub(crate) fn time_of_day(time: UnixTime) -> String {
    let time = time.to_string();
    time.split_once('T').map_or_else(String::new, |(_, time)| time.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_steps_of_the_wall_clock() {
        let mut walls = Walls::default();
        let check = |walls: &Walls, at: u64, expected: u64| {
            let time = walls.at(Instant::from_millis(at)).unwrap();
            assert_eq!(time, UnixTime::from_millis(expected), "{at}");
        };
        assert_eq!(walls.at(Instant::EPOCH), None);
        let note = |walls: &mut Walls, at, time| {
            walls.note(Instant::from_millis(at), UnixTime::from_millis(time));
            walls.0.len()
        };
        assert_eq!(note(&mut walls, 100, 10_100), 1);
        check(&walls, 0, 10_000);
        check(&walls, 300, 10_300);
        // An event is queued some time after it has happened.
        assert_eq!(note(&mut walls, 200, 10_220), 1);
        // The machine was suspended, which its own clock does not count. What happened right
        // afterwards becomes known later.
        assert_eq!(note(&mut walls, 500, 90_500), 2);
        check(&walls, 499, 10_499);
        assert_eq!(note(&mut walls, 400, 90_400), 3);
        check(&walls, 300, 10_300);
        check(&walls, 450, 90_450);
        // The clock was set back.
        assert_eq!(note(&mut walls, 600, 1_000), 4);
        check(&walls, 550, 90_550);
        check(&walls, 700, 1_100);
    }
}
