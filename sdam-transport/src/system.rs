//! Parts that runtimes on an operating system share: entropy, epoch, wall clock, timers, host name
//! look-up, socket options.
//!
//! Only the constructors of runtimes use these parts; the rest of this crate does not.

mod tcp;
mod timers;

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    thread,
    time::{self, Duration, SystemTime},
};

use futures::{channel::oneshot, future::BoxFuture};
use sdam_core::time::{Instant, UnixTime};

pub use self::{tcp::tune_tcp, timers::ThreadClock};
use crate::clock::Clock;

/// The zero point of a runtime's [`Instant`]s, on the system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    start: time::Instant,
}

impl Epoch {
    /// Creates an epoch that starts now.
    pub fn begin() -> Self {
        Self { start: time::Instant::now() }
    }

    /// Returns the current time, counted from the epoch.
    pub fn now(self) -> Instant {
        Instant::EPOCH + self.start.elapsed()
    }

    /// Converts `instant` to the system's type. Returns `None` if the system cannot represent such
    /// a late time.
    pub fn to_system(self, instant: Instant) -> Option<time::Instant> {
        self.start.checked_add(instant.since(Instant::EPOCH))
    }

    /// Returns the time until `instant`, or zero if `instant` has passed.
    pub fn until(self, instant: Instant) -> Duration {
        instant.since(self.now())
    }
}

/// The system's clock, combined with the timers of a runtime.
pub struct SystemClock<S> {
    epoch: Epoch,
    sleep: S,
    blocks: bool,
}

impl<S: Fn(Epoch, Instant) -> BoxFuture<'static, ()>> SystemClock<S> {
    /// Creates a clock that counts from `epoch`. `sleep` creates the timer for a deadline; the
    /// timer has to keep the contract of [`Clock`].
    pub fn new(epoch: Epoch, sleep: S) -> Self {
        Self { epoch, sleep, blocks: false }
    }

    /// Declares that timers [block](Clock::blocks) their thread.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocks = true;
        self
    }
}

impl<S> Clock for SystemClock<S>
where
    S: Fn(Epoch, Instant) -> BoxFuture<'static, ()> + Send + Sync + 'static,
{
    fn now(&self) -> Instant {
        self.epoch.now()
    }

    fn wall(&self) -> UnixTime {
        wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        (self.sleep)(self.epoch, deadline)
    }

    fn blocks(&self) -> bool {
        self.blocks
    }
}

sdam_core::opaque!(SystemClock<S>, |this| epoch: this.epoch);

/// Returns the time of the system's wall clock, or the start of 1970 if the clock is set to an
/// earlier time.
pub fn wall() -> UnixTime {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    UnixTime::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a random seed that differs from call to call and from process to process.
///
/// The seed is derived from the keys of the standard library's hash maps, which are seeded by the
/// system's entropy. It is suitable for load balancing and jitter, but not for cryptography.
pub fn entropy() -> u64 {
    RandomState::new().hash_one(())
}

/// Returns the addresses of `host`, with any port, from the system's resolver, which runs on its own
/// thread.
///
/// # Errors
///
/// The resolver's error, or an error if the system cannot start a thread.
///
/// # Cancel safety
///
/// Dropping the future abandons the look-up; the thread ends when the resolver returns.
pub async fn lookup_host(host: &str) -> io::Result<Vec<SocketAddr>> {
    let (answer, answered) = oneshot::channel();
    let host = host.to_owned();
    thread::Builder::new().spawn(move || {
        let found = (host, 0).to_socket_addrs();
        // The receiver has been dropped if the caller has dropped its future.
        let _ = answer.send(found.map(Iterator::collect));
    })?;
    answered.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
