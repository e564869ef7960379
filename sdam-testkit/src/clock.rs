//! A clock that only tests advance.

use std::{
    collections::BTreeMap,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};

use sdam_transport::clock::Clock;

/// A clock that advances only on request. Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use futures::FutureExt;
/// use sdam_core::time::Instant;
/// use sdam_testkit::ManualClock;
/// use sdam_transport::clock::Clock;
///
/// let clock = ManualClock::default();
/// let mut timer = clock.sleep_until(Instant::from_millis(10));
/// assert!((&mut timer).now_or_never().is_none());
/// clock.advance(Duration::from_millis(10));
/// assert!(timer.now_or_never().is_some());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: Instant,
    jumps: bool,
    /// True if the next timer that is polled stays pending at that poll, even on a jumping clock.
    held: bool,
    last_sleeper: u64,
    /// The wakers of pending timers, ordered by deadline and then by creation.
    sleepers: BTreeMap<(Instant, u64), Waker>,
}

impl ManualClock {
    /// Creates a clock that jumps to the deadline of each timer that is polled, so that no timer is
    /// ever pending. Such a clock is suitable for code that waits for only one thing at a time.
    pub fn jumping() -> Self {
        let clock = Self::default();
        clock.lock().jumps = true;
        clock
    }

    /// Returns whether the clock jumps to the deadline of each polled timer.
    pub fn is_jumping(&self) -> bool {
        self.lock().jumps
    }

    /// Makes the next timer that is polled pending at that poll, even though the clock jumps.
    pub fn hold_next_timer(&self) {
        self.lock().held = true;
    }

    /// Advances by `time` and wakes the expired timers.
    pub fn advance(&self, time: Duration) {
        let end = self.lock().now + time;
        self.advance_to(end);
    }

    /// Advances to `instant`, unless that time has passed, and wakes the expired timers.
    pub fn advance_to(&self, instant: Instant) {
        let mut state = self.lock();
        let now = state.now.max(instant);
        state.now = now;
        let later = state.sleepers.split_off(&(now, u64::MAX));
        let woken = mem::replace(&mut state.sleepers, later);
        drop(state);
        for waker in woken.into_values() {
            waker.wake();
        }
    }

    /// Returns the deadline of the next timer.
    pub fn next_deadline(&self) -> Option<Instant> {
        let state = self.lock();
        state.sleepers.keys().next().map(|(deadline, _)| *deadline)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn wall(&self) -> UnixTime {
        UnixTime::from_millis(self.now().as_nanos() / 1_000_000)
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let mut state = self.lock();
        state.last_sleeper += 1;
        Box::pin(Sleep { clock: self.clone(), key: (deadline, state.last_sleeper) })
    }
}

struct Sleep {
    clock: ManualClock,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.lock();
        if state.now >= self.key.0 {
            return Poll::Ready(());
        }
        if state.jumps && !mem::take(&mut state.held) {
            drop(state);
            self.clock.advance_to(self.key.0);
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.clock.lock().sleepers.remove(&self.key);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn timers_are_woken_at_their_deadline_and_forgotten_when_dropped() {
        let clock = ManualClock::default();
        let at = |millis: u64| Instant::from_millis(millis);
        let mut early = clock.sleep_until(at(10));
        let mut late = clock.sleep_until(at(20));
        assert_eq!(early.as_mut().now_or_never(), None);
        assert_eq!(late.as_mut().now_or_never(), None);
        assert_eq!(clock.next_deadline(), Some(at(10)));
        clock.advance_to(at(10));
        assert_eq!(early.as_mut().now_or_never(), Some(()));
        assert_eq!(late.as_mut().now_or_never(), None);
        assert_eq!(clock.next_deadline(), Some(at(20)));
        drop(late);
        assert_eq!(clock.next_deadline(), None);
        clock.advance_to(at(5));
        assert_eq!(clock.now(), at(10));
        assert_eq!(clock.now() + Duration::from_millis(1), at(11));
        assert_eq!(clock.wall(), UnixTime::from_millis(10));
    }

    #[test]
    fn a_clock_that_jumps_advances_to_each_timer_unless_it_is_held() {
        let clock = ManualClock::jumping();
        let deadline = Instant::from_millis(10);
        clock.hold_next_timer();
        let mut timer = clock.sleep_until(deadline);
        assert_eq!(timer.as_mut().now_or_never(), None);
        assert_eq!(clock.now(), Instant::EPOCH);
        assert_eq!(timer.now_or_never(), Some(()));
        assert_eq!(clock.now(), deadline);
    }
}
