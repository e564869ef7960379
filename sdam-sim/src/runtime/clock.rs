//! The virtual clock.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use sdam_core::time::{Instant, UnixTime};
use sdam_transport::{
    clock::Clock,
    rare::{Point, defers},
};

use super::Shared;

/// A clock whose time advances only while no task is ready.
#[derive(Debug)]
pub(super) struct SimClock(pub(super) Arc<Shared>);

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.0.state().now()
    }

    fn wall(&self) -> UnixTime {
        self.0.state().wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(Arc::clone(&self.0), deadline))
    }
}

/// A timer. Dropping it cancels it.
pub(super) struct Sleep {
    shared: Arc<Shared>,
    deadline: Instant,
    timer: Option<u64>,
}

impl Sleep {
    pub(super) fn new(shared: Arc<Shared>, deadline: Instant) -> Self {
        Self { shared, deadline, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.shared.state();
        if state.now() >= this.deadline {
            if let Some(timer) = this.timer.take() {
                state.timers.remove(&(this.deadline, timer));
            }
            return Poll::Ready(());
        }
        // The waker stays the same, so the timer wakes the task again when it is due.
        defers(Point::TimerForNothing, cx);
        this.timer = Some(state.set_timer(this.deadline, this.timer, cx.waker()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.shared.state().timers.remove(&(self.deadline, timer));
        }
    }
}
