//! Time, as a seam.

use std::fmt::Debug;

use futures::future::BoxFuture;
use sdam_core::time::Instant;

/// A monotonic clock and its timers.
///
/// # Contract
///
/// - The caller holds no lock.
/// - `now` never goes backwards, from whichever thread it is asked, and counts from an epoch that
///   is fixed when the clock is made.
/// - The future of `sleep_until` is ready at once if the deadline has passed, and never before the
///   deadline: once it is ready, `now` is at or after it.
/// - Futures that are polled in time become ready in the order of their deadlines.
/// - Both methods may be called from any thread, the future may be polled by any executor and moved
///   between threads, and dropping it anywhere frees the timer.
/// - Neither method panics, not even when the runtime behind the clock has shut down.
pub trait Clock: Send + Sync + Debug + 'static {
    /// The present.
    ///
    /// There is no default body, because a forgotten override would let real time into a
    /// simulation.
    fn now(&self) -> Instant;

    /// A future that is ready at `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future forgets the timer.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()>;
}
