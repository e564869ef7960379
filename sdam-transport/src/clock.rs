//! The clock trait.

use std::fmt::Debug;

use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};

/// A monotonic clock and its timers, and the wall clock.
///
/// # Contract
///
/// - The caller holds no lock, and may call all methods from any thread.
/// - `now` never goes backwards, whichever thread calls it.
/// - A timer is never early: once the future of `sleep_until` is ready, `now` is at or after the
///   deadline.
/// - A timer is ready when it is first polled if its deadline has passed by then.
/// - A timer may be polled by any executor, and moved to another thread between two polls.
/// - A timer may be dropped before it is ready, on any thread.
/// - A clock whose timers block the thread that polls them reports that in
///   [`blocks`](Self::blocks).
/// - All of this holds after the runtime behind the clock has ended, too, because a selection
///   outside the runtime may still wait for its timeout.
///
/// Timers with different deadlines may become ready in any order.
/// [`ThreadClock`](crate::system::ThreadClock) keeps this contract on every runtime.
pub trait Clock: Send + Sync + Debug + 'static {
    /// Returns the current time.
    ///
    /// There is no default implementation, because a forgotten override would use real time in a
    /// simulation.
    fn now(&self) -> Instant;

    /// Returns the wall-clock time for events. It is only displayed; no decision depends on it.
    /// [`system::wall`](crate::system::wall) returns the operating system's.
    ///
    /// There is no default implementation, for the same reason.
    fn wall(&self) -> UnixTime;

    /// Returns a future that is ready at `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the timer.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()>;

    /// Returns whether timers block their thread instead of returning `Pending`. A
    /// [race](crate::race::deadline) against such a timer blocks the thread while its future is
    /// pending. By default, timers do not block.
    fn blocks(&self) -> bool {
        false
    }
}
