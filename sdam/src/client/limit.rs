use std::time::Duration;

use sdam_core::time::Instant;

/// The time limit of a check-out without one: 34 years.
const NEVER: Duration = Duration::from_secs(1 << 30);

/// The time limit of an operation with all its attempts (Client Side Operations Timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// `timeoutMS` is not set: each step is limited by its own option.
    Unset,
    /// `timeoutMS` is 0: there is no limit, and the deprecated options do not apply either.
    Endless,
    At(Instant),
}

/// The time limits of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// The time limit that the client itself enforces for the exchange.
    pub(super) timeout: Option<Duration>,
    /// The command's `maxTimeMS`, which is positive; `None` if there is no limit.
    pub(super) max_time: Option<i64>,
}

impl Limit {
    /// Returns the limit of an operation that begins now.
    pub(super) fn new(timeout: Option<Duration>, now: Instant) -> Self {
        match timeout {
            None => Self::Unset,
            Some(Duration::ZERO) => Self::Endless,
            Some(timeout) => Self::At(now + timeout),
        }
    }

    pub(super) fn is_set(self) -> bool {
        self != Self::Unset
    }

    pub(super) fn has_passed(self, now: Instant) -> bool {
        matches!(self, Self::At(deadline) if now >= deadline)
    }

    /// Returns the time by which an operation must have checked out its connection, if its
    /// selection begins now and may take up to `selection`. `None` means that `waitQueueTimeoutMS`
    /// applies.
    pub(super) fn check_out_by(self, now: Instant, selection: Duration) -> Option<Instant> {
        // A selection timeout of 0 means that the selection does not wait. It sets no limit for the
        // check-out.
        let selected = Some(now + selection).filter(|_| !selection.is_zero());
        match self {
            Self::Unset => None,
            Self::Endless => Some(selected.unwrap_or(now + NEVER)),
            Self::At(deadline) => Some(selected.map_or(deadline, |by| by.min(deadline))),
        }
    }

    /// Returns the remaining time for an exchange with a server whose shortest round trip is
    /// `minimum_rtt`; `None` if no reply can arrive in time.
    pub(super) fn budget(
        self,
        now: Instant,
        minimum_rtt: Duration,
        socket_timeout: Option<Duration>,
    ) -> Option<Budget> {
        let unlimited = |timeout| Budget { timeout, max_time: None };
        let deadline = match self {
            Self::Unset => return Some(unlimited(socket_timeout)),
            Self::Endless => return Some(unlimited(None)),
            Self::At(deadline) => deadline,
        };
        let left = deadline.since(now);
        let on_server = left.checked_sub(minimum_rtt)?.as_millis();
        // A `maxTimeMS` of 0 means no limit, and servers accept at most an `i32`.
        let on_server = i64::from(i32::try_from(on_server).unwrap_or(i32::MAX));
        (on_server > 0).then_some(Budget { timeout: Some(left), max_time: Some(on_server) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_server_gets_what_is_left_less_the_shortest_round_trip() {
        let check = |timeout, rtt, expected: Option<(Duration, i64)>| {
            let budget = Limit::new(Some(timeout), NOW).budget(NOW, rtt, Some(millis(1)));
            let expected = expected.map(|(timeout, max_time)| Budget {
                timeout: Some(timeout),
                max_time: Some(max_time),
            });
            assert_eq!(budget, expected, "{timeout:?} {rtt:?}");
        };
        let (long, longest) = (millis(1 << 40), i64::from(i32::MAX));
        check(millis(500), millis(50), Some((millis(500), 450)));
        check(millis(50), millis(50), None);
        check(millis(49), millis(50), None);
        check(millis(1), Duration::from_micros(1), None);
        check(millis(1), Duration::ZERO, Some((millis(1), 1)));
        check(long, Duration::ZERO, Some((long, longest)));
    }

    #[test]
    fn the_limit_of_the_socket_applies_without_time_limit_only() {
        // `socketTimeoutMS` applies only if `timeoutMS` is not set (S-4).
        let socket = Some(millis(7));
        for (timeout, expected) in [(None, socket), (Some(Duration::ZERO), None)] {
            let limit = Limit::new(timeout, NOW);
            let budget = limit.budget(NOW, millis(50), socket).unwrap();
            assert_eq!((budget.timeout, budget.max_time), (expected, None));
            assert_eq!(limit.is_set(), timeout.is_some());
            assert!(!limit.has_passed(NOW + millis(1 << 40)));
        }
    }
}
