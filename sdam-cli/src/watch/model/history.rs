//! The last checks of a server, and their summary for a sparkline.

use std::{collections::VecDeque, time::Duration};

use sdam_core::time::Instant;

use super::push;

/// The maximum number of checks to keep.
const CAPACITY: usize = 1024;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The check was answered with this round-trip time.
    Answered(Duration),
    /// The check failed.
    Lost,
}

/// A column of a sparkline: the worst check of its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// No check took place in the period or before it.
    Empty,
    /// The worst check in the period had this result.
    Checked(Probe),
    /// No check took place in the period; the last check before it had this result.
    Held(Probe),
}

/// The last checks of a server, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<(Instant, Probe)>);

impl History {
    /// Adds a check that ended at `at`.
    pub(crate) fn add(&mut self, at: Instant, probe: Probe) {
        push(&mut self.0, CAPACITY, (at, probe));
    }

    /// Summarizes the last `count` periods, oldest first; the last one contains `now`.
    ///
    /// Periods begin at multiples of their length, so that completed columns never change.
    pub(crate) fn columns(&self, now: Instant, period: Duration, count: usize) -> Vec<Column> {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let number = |at: Instant| at.as_nanos() / period;
        let last = number(now);
        let mut held = None;
        let mut probes = self.0.iter().peekable();
        let column = |back: u64| {
            // There were no checks before the epoch.
            let Some(own) = last.checked_sub(back) else {
                return Column::Empty;
            };
            while let Some((_, probe)) = probes.next_if(|(at, _)| number(*at) < own) {
                held = Some(*probe);
            }
            let mut worst = None;
            while let Some((_, probe)) = probes.next_if(|(at, _)| number(*at) == own) {
                held = Some(*probe);
                worst = Some(worst.map_or(*probe, |other| worse(other, *probe)));
            }
            match (worst, held) {
                (Some(worst), _) => Column::Checked(worst),
                (None, Some(held)) => Column::Held(held),
                (None, None) => Column::Empty,
            }
        };
        (0..count as u64).rev().map(column).collect()
    }
}

fn worse(one: Probe, other: Probe) -> Probe {
    match (one, other) {
        (Probe::Answered(one), Probe::Answered(other)) => Probe::Answered(one.max(other)),
        _ => Probe::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn answered(millis: u64) -> Probe {
        Probe::Answered(Duration::from_millis(millis))
    }

    fn history(probes: &[(u64, Probe)]) -> History {
        let mut history = History::default();
        for (millis, probe) in probes {
            history.add(at(*millis), *probe);
        }
        history
    }

    #[test]
    fn a_column_shows_the_worst_check_of_its_period() {
        let history = history(&[
            (100, answered(2)),
            (900, answered(5)),
            (1200, answered(1)),
            (1300, Probe::Lost),
            (1400, answered(1)),
        ]);
        assert_eq!(
            history.columns(at(1999), SECOND, 2),
            [Column::Checked(answered(5)), Column::Checked(Probe::Lost)]
        );
    }

    #[test]
    fn a_period_without_a_check_holds_the_last_result_before_it() {
        let history = history(&[(1100, answered(3)), (1900, answered(2)), (4000, Probe::Lost)]);
        assert_eq!(
            history.columns(at(5500), SECOND, 8),
            [
                Column::Empty,
                Column::Empty,
                Column::Empty,
                Column::Checked(answered(3)),
                Column::Held(answered(2)),
                Column::Held(answered(2)),
                Column::Checked(Probe::Lost),
                Column::Held(Probe::Lost),
            ]
        );
        // The last result is held even if that check was before the first column.
        assert_eq!(history.columns(at(9000), SECOND, 1), [Column::Held(Probe::Lost)]);
    }

    #[test]
    fn columns_change_only_when_a_period_ends() {
        let history = history(&[(1100, answered(3))]);
        let early = history.columns(at(5000), SECOND, 4);
        assert_eq!(history.columns(at(5999), SECOND, 4), early);
    }

    #[test]
    fn only_the_last_checks_are_kept() {
        let mut history = History::default();
        for number in 0..2 * CAPACITY as u64 {
            history.add(at(number), answered(number));
        }
        assert_eq!(history.0.len(), CAPACITY);
    }
}
