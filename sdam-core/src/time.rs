//! Points in time, on the monotonic clock of a runtime and on the wall clock.

use alloc::string::ToString as _;
use core::{
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::Duration,
};

use crate::document;

/// A point in time, in nanoseconds since the epoch of the runtime that measured it.
///
/// Only instants of the same runtime can be compared. All arithmetic saturates, so that a
/// misbehaving clock cannot make a machine panic.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Instant(u64);

impl Instant {
    /// The runtime's epoch.
    pub const EPOCH: Self = Self(0);
    /// The latest possible instant, about 584 years after the epoch.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the instant `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// A wall-clock time for display to people: milliseconds since 1970-01-01 in UTC.
///
/// `{}` prints the date and time in RFC 3339, such as `2026-11-22T22:17:46.123Z`, for years up to
/// 9999. The time may go back when the clock is set, so no decision depends on it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// Creates the time `millis` milliseconds after 1970-01-01.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since 1970-01-01.
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match document::rfc_3339(i64::try_from(self.0).unwrap_or(i64::MAX)) {
            Some((seconds, millis)) => write!(f, "{seconds}.{millis:03}Z"),
            None => write!(f, "{} ms after 1970", self.0),
        }
    }
}

impl fmt::Debug for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for UnixTime {
    type Err = MalformedTime;

    /// Parses the format printed by `{}`.
    fn from_str(text: &str) -> Result<Self, MalformedTime> {
        let time = document::parse_rfc_3339(text).and_then(|millis| u64::try_from(millis).ok());
        // Every other format that RFC 3339 allows is rejected.
        let written = time.map(Self).filter(|time| time.to_string() == text);
        written.ok_or(MalformedTime)
    }
}

/// The error for a string that is not in the format of [`UnixTime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("a time is written like 2026-11-22T22:17:46.123Z")]
pub struct MalformedTime;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::MAX + Duration::MAX, Instant::MAX);
        assert_eq!(Instant::EPOCH - Duration::from_secs(1), Instant::EPOCH);
        assert_eq!(Instant::EPOCH.since(Instant::MAX), Duration::ZERO);
        assert_eq!(
            Instant::from_millis(1500).since(Instant::from_millis(500)),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn times_are_written_and_parsed_by_rfc_3339() {
        for (seconds, millis, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.001Z"),
            (951_868_800, 0, "2000-03-01T00:00:00.000Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
            (1_704_067_199, 500, "2023-12-31T23:59:59.500Z"),
            (253_402_300_799, 999, "9999-12-31T23:59:59.999Z"),
        ] {
            let time = UnixTime::from_millis(seconds * 1000 + millis);
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
        }
    }

    #[test]
    fn every_other_text_is_refused() {
        for text in [
            "",
            "1969-12-31T23:59:59.000Z",
            "2001-02-29T00:00:00.000Z",
            "2000-13-01T00:00:00.000Z",
            "2000-01-01T00:00:00Z",
            "2000-01-01T00:00:00.000",
            "2000-01-01T00:00:00.000Zx",
            "2000-01-01 00:00:00.000Z",
            "+000-01-01T00:00:00.000Z",
            "2000-01-01T00:00:00.0é",
        ] {
            assert_eq!(text.parse::<UnixTime>(), Err(MalformedTime), "{text}");
        }
    }
}
