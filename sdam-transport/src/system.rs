//! What runtimes over an operating system share.
//!
//! Nothing else in this crate uses it: it is for the constructors of runtimes.

mod timers;

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::{IpAddr, ToSocketAddrs as _},
    thread,
    time::{self, Duration},
};

use futures::channel::oneshot;
use sdam_core::time::Instant;

pub use self::timers::ThreadClock;

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

/// The addresses that the system's resolver has for `host`, asked on a thread of its own.
///
/// # Errors
///
/// Those of the resolver, or that the system has no thread left.
///
/// # Cancel safety
///
/// Dropping the future abandons the look-up; the thread ends when the system answers.
pub async fn lookup_ip(host: &str) -> io::Result<Vec<IpAddr>> {
    let (answer, answered) = oneshot::channel();
    let host = host.to_owned();
    thread::Builder::new().spawn(move || {
        let found = (host, 0).to_socket_addrs();
        // Dropped by a caller that has given up.
        let _ = answer.send(found.map(|found| found.map(|address| address.ip()).collect()));
    })?;
    answered.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
