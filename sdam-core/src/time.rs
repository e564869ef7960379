//! Points in time, on the monotonic clock of a runtime and on the wall clock.

mod unix;

use core::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

pub use self::unix::{MalformedTime, UnixTime};

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
}
