//! The virtual clock.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};
use sdam_transport::clock::Clock;

use super::Shared;

/// A clock whose time advances only while no task is ready.
#[derive(Debug)]
pub(super) struct SimClock {
    pub(super) shared: Arc<Shared>,
    /// True if timers may be late in a disturbed simulation.
    pub(super) may_be_late: bool,
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.shared.state().now()
    }

    fn wall(&self) -> UnixTime {
        self.shared.state().wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let mut sleep = Sleep::new(Arc::clone(&self.shared), deadline);
        sleep.may_be_late = self.may_be_late;
        Box::pin(sleep)
    }
}

/// A timer. Dropping it cancels it.
pub(super) struct Sleep {
    shared: Arc<Shared>,
    /// The time at which the timer is ready.
    due: Instant,
    /// The id of the timer after the first poll.
    timer: Option<u64>,
    may_be_late: bool,
}

impl Sleep {
    /// Creates a timer that is never late.
    pub(super) fn new(shared: Arc<Shared>, deadline: Instant) -> Self {
        Self { shared, due: deadline, timer: None, may_be_late: false }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.shared.state();
        if state.now() >= this.due {
            if let Some(timer) = this.timer.take() {
                state.timers.remove(&(this.due, timer));
            }
            return Poll::Ready(());
        }
        if this.timer.is_none() && this.may_be_late {
            this.due = this.due + state.disturbances.lateness();
        }
        this.timer = Some(state.set_timer(this.due, this.timer, cx.waker()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.shared.state().timers.remove(&(self.due, timer));
        }
    }
}
