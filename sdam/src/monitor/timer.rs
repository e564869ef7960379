//! A timer whose deadline may move.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use sdam_core::time::Instant;
use sdam_transport::clock::Clock;

/// A timer that is renewed only when the deadline changes.
#[derive(Default)]
pub(crate) struct DeadlineTimer(Option<(Instant, BoxFuture<'static, ()>)>);

impl DeadlineTimer {
    /// Becomes ready once `deadline` has passed; stays pending without a deadline.
    pub(crate) fn poll(
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
            // A deadline that has passed needs no timer.
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

impl fmt::Debug for DeadlineTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeadlineTimer").field(&self.0.as_ref().map(|(set, _)| set)).finish()
    }
}
