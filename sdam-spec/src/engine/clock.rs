//! A manual clock, which advances only on request.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use futures::future::BoxFuture;
use sdam_core::time::Instant;
use sdam_transport::Clock;

/// The clock of one topology; clones share the time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    dial: Arc<Mutex<Dial>>,
}

#[derive(Debug, Default)]
struct Dial {
    now: Instant,
    last_sleeper: u64,
    /// Ordered by deadline, then by creation.
    sleepers: BTreeMap<(Instant, u64), Waker>,
}

impl ManualClock {
    /// Advances to `instant` and wakes the timers that have expired; never goes back.
    pub fn advance_to(&self, instant: Instant) {
        let mut dial = self.lock();
        let now = dial.now.max(instant);
        dial.now = now;
        let later = dial.sleepers.split_off(&(now, u64::MAX));
        let woken = std::mem::replace(&mut dial.sleepers, later);
        drop(dial);
        for waker in woken.into_values() {
            waker.wake();
        }
    }

    /// Returns the deadline of the next timer.
    pub fn next_deadline(&self) -> Option<Instant> {
        let dial = self.lock();
        dial.sleepers.keys().next().map(|(deadline, _)| *deadline)
    }

    fn lock(&self) -> MutexGuard<'_, Dial> {
        self.dial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let mut dial = self.lock();
        dial.last_sleeper += 1;
        Box::pin(Sleep {
            clock: self.clone(),
            key: (deadline, dial.last_sleeper),
        })
    }
}

struct Sleep {
    clock: ManualClock,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut dial = self.clock.lock();
        if dial.now >= self.key.0 {
            return Poll::Ready(());
        }
        dial.sleepers.insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.clock.lock().sleepers.remove(&self.key);
        drop(waker);
    }
}
