//! The clock and its timers.

use async_std::task;
use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};
use sdam_transport::{
    clock::Clock,
    system::{self, Epoch},
};

#[derive(Debug)]
pub(crate) struct AsyncStdClock {
    epoch: Epoch,
}

impl AsyncStdClock {
    pub(crate) fn new() -> Self {
        Self { epoch: Epoch::begin() }
    }
}

impl Clock for AsyncStdClock {
    fn now(&self) -> Instant {
        self.epoch.now()
    }

    fn wall(&self) -> UnixTime {
        system::wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let epoch = self.epoch;
        // async-std's `sleep` takes a duration, so the remaining time is computed at the first
        // poll.
        Box::pin(async move {
            while epoch.now() < deadline {
                task::sleep(epoch.until(deadline)).await;
            }
        })
    }
}
