//! What runtimes over an operating system share.
//!
//! Nothing else in this crate uses it: it is for the constructors of runtimes.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::{self, Duration},
};

use sdam_core::time::Instant;

/// The moment from which a runtime counts, on the system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    start: time::Instant,
}

impl Epoch {
    /// The present as the epoch.
    pub fn begin() -> Self {
        Self {
            start: time::Instant::now(),
        }
    }

    /// The present, counted from the epoch.
    pub fn now(self) -> Instant {
        Instant::EPOCH + self.start.elapsed()
    }

    /// `instant` in the system's terms; `None` if it is later than those can express.
    pub fn to_system(self, instant: Instant) -> Option<time::Instant> {
        self.start.checked_add(instant.since(Instant::EPOCH))
    }

    /// The time until `instant`, zero if it has passed.
    pub fn until(self, instant: Instant) -> Duration {
        instant.since(self.now())
    }
}

/// A seed that differs from call to call and from process to process.
///
/// It comes from the keys that the standard library draws from the system's entropy for its hash
/// maps. Good enough for load balancing and jitter, not for cryptography.
pub fn entropy() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_the_same_in_both_terms() {
        let epoch = Epoch::begin();
        let later = epoch.now() + Duration::from_secs(5);
        let system = epoch.to_system(later).unwrap();
        assert_eq!(system - epoch.start, later.since(Instant::EPOCH));
        assert!(epoch.until(later) <= Duration::from_secs(5));
        assert_eq!(epoch.until(Instant::EPOCH), Duration::ZERO);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(entropy(), entropy());
    }
}
