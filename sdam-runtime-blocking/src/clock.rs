//! The clock, whose timers block the thread.

use std::thread;

use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};
use sdam_transport::{
    clock::Clock,
    system::{self, Epoch},
};

#[derive(Debug)]
pub(crate) struct BlockingClock {
    epoch: Epoch,
}

impl BlockingClock {
    pub(crate) fn new(epoch: Epoch) -> Self {
        Self { epoch }
    }
}

impl Clock for BlockingClock {
    fn now(&self) -> Instant {
        self.epoch.now()
    }

    fn wall(&self) -> UnixTime {
        system::wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let epoch = self.epoch;
        Box::pin(async move {
            while epoch.now() < deadline {
                thread::sleep(epoch.until(deadline));
            }
        })
    }

    fn blocks(&self) -> bool {
        true
    }
}
