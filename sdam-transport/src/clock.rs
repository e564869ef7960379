//! The clock trait, and a timer whose deadline can be changed.

use std::{
    fmt::Debug,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};

/// A monotonic clock with timers, and a wall clock.
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
    /// There is no default implementation. If there were one, a simulation that forgot to override
    /// it would use real time.
    fn now(&self) -> Instant;

    /// Returns the wall-clock time for events. It is only displayed; no decision depends on it.
    /// [`system::wall`](crate::system::wall) returns the operating system's wall-clock time.
    ///
    /// There is no default implementation, for the same reason as for [`now`](Self::now).
    fn wall(&self) -> UnixTime;

    /// Returns a future that is ready at `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the timer.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()>;

    /// Returns whether timers block the thread that polls them instead of returning `Pending`. A
    /// [race](crate::race::deadline) against such a timer blocks the thread until the raced
    /// future is ready or the deadline has passed. By default, timers do not block.
    fn blocks(&self) -> bool {
        false
    }
}

/// A timer that is recreated only when the deadline changes.
#[derive(Default)]
pub struct DeadlineTimer(Option<(Instant, BoxFuture<'static, ()>)>);

impl DeadlineTimer {
    /// Returns `Ready` once `deadline` has passed. Without a deadline, the timer stays pending.
    pub fn poll(
        &mut self,
        clock: &dyn Clock,
        deadline: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(deadline) = deadline else {
            self.0 = None;
            return Poll::Pending;
        };
        if self.0.as_ref().is_none_or(|(set, _)| *set != deadline) {
            // If the deadline has already passed, no timer is needed.
            if deadline <= clock.now() {
                self.0 = None;
                return Poll::Ready(());
            }
            self.0 = Some((deadline, clock.sleep_until(deadline)));
        }
        let Some((_, timer)) = &mut self.0 else {
            return Poll::Pending;
        };
        let state = Pin::new(timer).poll(cx);
        if state.is_ready() {
            self.0 = None;
        }
        state
    }
}

sdam_core::opaque!(DeadlineTimer, |this| deadline: this.0.as_ref().map(|(set, _)| set));
