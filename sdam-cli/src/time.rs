//! The wall-clock times of the instants of a client's clock, and texts about times, durations and
//! failovers, shared by all subcommands.

use std::time::Duration;

use sdam_core::time::{Instant, UnixTime};
use sdam_events::facts::{Bounds, Failover, Loss, Outage};

/// The greatest difference that does not count as a step of the wall clock.
const STEP: u64 = 250;
/// The maximum number of steps to keep. Times before the oldest kept step are calculated from that
/// step.
const MOST: usize = 1_000;

/// The relation between a client's clock and the wall clock.
///
/// The wall clock may be set at any time, and the client's clock may stop while the machine is
/// suspended. So the times of both clocks are kept as pairs. Each pair applies until the next one,
/// and a new pair is added only if the last one does not predict it.
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

/// Formats the time of day in UTC, as in the logs of servers.
pub(crate) fn time_of_day(time: UnixTime) -> String {
    let time = time.to_string();
    time.split_once('T').map_or_else(String::new, |(_, time)| time.to_owned())
}

/// Formats a duration with about three digits, such as `6.214 s`, `12.3 ms` or `2 h 05 min`.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let millis = time.as_secs_f64() * 1000.0;
    match seconds {
        0 if time.is_zero() => "0 s".to_owned(),
        0 if millis < 1.0 => format!("{millis:.2} ms"),
        0 if millis < 100.0 => format!("{millis:.1} ms"),
        0 => format!("{millis:.0} ms"),
        1..10 => format!("{:.3} s", time.as_secs_f64()),
        10..120 => format!("{:.1} s", time.as_secs_f64()),
        120..7200 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        7200.. => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats a duration of which only bounds are known, for example as `up to 9.2 s`.
pub(crate) fn range(bounds: Bounds, format: impl Fn(Duration) -> String) -> String {
    let [least, most] = [bounds.at_least, bounds.at_most].map(format);
    match bounds.at_least {
        _ if least == most => most,
        Duration::ZERO => format!("up to {most}"),
        _ => format!("{least} to {most}"),
    }
}

/// Describes the cause of an outage. Includes the time between the last sign of the old primary and
/// the moment when its loss was noticed, if these differ.
pub(crate) fn cause(outage: &Outage, format: impl Fn(Duration) -> String) -> String {
    let loss = outage.loss.to_string();
    let loss = loss.trim_end_matches('.');
    let silence = outage.noticed.since(outage.earliest());
    match outage.loss {
        _ if silence.is_zero() => loss.to_owned(),
        Loss::SteppedDown(_) => format!("{loss}; last seen as primary {} before", format(silence)),
        _ => format!("{loss}; last answer {} before", format(silence)),
    }
}

/// Describes a failover on one line.
pub(crate) fn describe(failover: &Failover, format: impl Fn(Duration) -> String) -> String {
    let Failover { outage, new, .. } = failover;
    let without = failover.without_primary();
    let time = range(without, &format);
    let end = match (&outage.lost, new) {
        (Some(old), Some(new)) if old == new => format!("{new} is primary again"),
        (Some(old), Some(new)) => format!("{old} -> {new}"),
        _ => return format!("writable again after {time}"),
    };
    match outage.loss {
        Loss::Replaced(_) if !without.at_most.is_zero() => {
            let cause = cause(outage, &format);
            format!("no primary for {time}: {end}, {cause}")
        }
        _ if without.at_most.is_zero() => format!("no gap noticed: {end}"),
        _ => format!("no primary for {time}: {end}"),
    }
}

/// Returns the time at `at`, if the clocks have not been set between `pair` and `at`.
fn project((known, time): (Instant, UnixTime), at: Instant) -> UnixTime {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (after, before) = (millis(at.since(known)), millis(known.since(at)));
    UnixTime::from_millis(time.as_millis().saturating_add(after).saturating_sub(before))
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
        // The machine was suspended, but the client's clock did not advance. An event from right
        // after the suspension becomes known later.
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

    #[test]
    fn durations_have_the_unit_that_suits_them() {
        let check = |micros, expected| {
            assert_eq!(short(Duration::from_micros(micros)), expected);
        };
        check(0, "0 s");
        check(421, "0.42 ms");
        check(12_340, "12.3 ms");
        check(234_500, "234 ms");
        check(6_214_400, "6.214 s");
        check(61_250_000, "61.2 s");
        check(725_000_000, "12 min 05 s");
        check(7_500_000_000, "2 h 05 min");
    }
}
