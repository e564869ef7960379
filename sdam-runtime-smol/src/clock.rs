//! The clock and its timers.

use futures::{FutureExt as _, future::BoxFuture};
use sdam_core::time::{Instant, UnixTime};
use sdam_transport::{
    clock::Clock,
    system::{self, Epoch},
};
use smol::Timer;

#[derive(Debug)]
pub(crate) struct SmolClock {
    epoch: Epoch,
}

impl SmolClock {
    pub(crate) fn new() -> Self {
        Self { epoch: Epoch::begin() }
    }
}

impl Clock for SmolClock {
    fn now(&self) -> Instant {
        self.epoch.now()
    }

    fn wall(&self) -> UnixTime {
        system::wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let at = self.epoch.to_system(deadline);
        at.map_or_else(Timer::never, Timer::at).map(drop).boxed()
    }
}
