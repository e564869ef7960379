//! A clock that tests set by hand, for code that is polled by hand.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use futures::future::BoxFuture;
use sdam_core::time::Instant;

use crate::clock::Clock;

/// A clock that only `advance` moves; timers wake no task, because tests poll by themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock {
    now: Arc<Mutex<Instant>>,
}

impl ManualClock {
    pub(crate) fn advance(&self, millis: u64) {
        let mut now = self.now.lock().unwrap();
        *now = *now + Duration::from_millis(millis);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.now.lock().unwrap()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(poll_fn(move |_| {
            if clock.now() >= deadline {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
    }
}
