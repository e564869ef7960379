//! A clock whose timers need no runtime.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};

use super::Epoch;
use crate::clock::Clock;

/// The system's clock with timers on a background thread. It is meant for runtimes that have no
/// timers, or whose timers work only on their own thread or only while the runtime runs.
///
/// The thread runs only while a timer is pending.
#[derive(Clone, Debug)]
pub struct ThreadClock {
    epoch: Epoch,
    timers: Arc<Timers>,
}

impl ThreadClock {
    /// Creates a clock that counts from `epoch`.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, timers: Arc::default() }
    }
}

impl Clock for ThreadClock {
    fn now(&self) -> Instant {
        self.epoch.now()
    }

    fn wall(&self) -> UnixTime {
        super::wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Timer { clock: self.clone(), deadline, number: None })
    }
}

#[derive(Debug, Default)]
struct Timers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The wakers of pending timers, by deadline and sequence number.
    waiting: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
    /// True if the thread is running.
    watched: bool,
}

impl Timers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes timers at their deadlines, until no timer is pending.
    fn watch(&self, epoch: Epoch) {
        let mut state = self.state();
        while let Some((&(deadline, _), _)) = state.waiting.first_key_value() {
            let pause = epoch.until(deadline);
            if pause.is_zero() {
                let due = state.waiting.pop_first();
                // Release the lock first, because waking may drop a timer, which takes the lock.
                drop(state);
                if let Some((_, waker)) = due {
                    waker.wake();
                }
                state = self.state();
            } else {
                let waited = self.changed.wait_timeout(state, pause.min(LONGEST_PAUSE));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        state.watched = false;
        self.changed.notify_all();
    }
}

struct Timer {
    clock: ThreadClock,
    deadline: Instant,
    number: Option<u64>,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let epoch = this.clock.epoch;
        if epoch.now() >= this.deadline {
            return Poll::Ready(());
        }
        let timers = &this.clock.timers;
        let mut state = timers.state();
        let number = *this.number.get_or_insert_with(|| {
            state.next_number += 1;
            state.next_number
        });
        let key = (this.deadline, number);
        let replaced = state.waiting.insert(key, cx.waker().clone());
        if !state.watched {
            let watched = Arc::clone(timers);
            let thread = thread::Builder::new().name("sdam-timers".to_owned());
            state.watched = thread.spawn(move || watched.watch(epoch)).is_ok();
        }
        let watched = state.watched;
        // Release the lock first, because dropping a waker may drop a task and its timers, which
        // take the lock.
        drop(state);
        drop(replaced);
        timers.changed.notify_one();
        if !watched {
            // The system could not start a thread, so the task is woken at once and will check the
            // clock again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let timers = &self.clock.timers;
            let removed = timers.state().waiting.remove(&(self.deadline, number));
            // The lock is released first, because dropping a waker may take it.
            drop(removed);
            timers.changed.notify_one();
        }
    }
}

sdam_core::opaque!(Timer, |this| deadline: this.deadline);

/// The maximum length of one pause of the thread, because not every system supports longer waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn dropped_and_ready_timers_are_removed_and_no_thread_waits_for_them() {
        let clock = ThreadClock::new(Epoch::begin());
        let mut far = clock.sleep_until(Instant::MAX);
        assert!((&mut far).now_or_never().is_none());
        assert!((&mut far).now_or_never().is_none());
        assert_eq!(clock.timers.state().waiting.len(), 1);
        let mut other = clock.sleep_until(Instant::MAX);
        assert!((&mut other).now_or_never().is_none());
        assert_eq!(clock.timers.state().waiting.len(), 2, "of the same deadline");
        assert!(clock.timers.state().watched);
        drop((far, other));
        // The thread ends because no timer is pending. The clock is then the only owner of the
        // timers.
        let mut state = clock.timers.state();
        assert!(state.waiting.is_empty());
        while state.watched {
            let changed = clock.timers.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
