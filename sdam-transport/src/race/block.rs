//! Races on clocks whose timers block.

use std::{
    pin::Pin,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use sdam_core::time::Instant;

use super::Elapsed;
use crate::clock::Clock;

/// Polls `future` whenever it is woken, and blocks the thread between polls.
pub(super) fn until<F: Future>(
    clock: &dyn Clock,
    deadline: Instant,
    mut future: Pin<&mut F>,
) -> Result<F::Output, Elapsed> {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Ok(output);
        }
        let now = clock.now();
        if now >= deadline {
            return Err(Elapsed);
        }
        let mut woken = signal.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            // After a spurious wake-up, the future is only polled once more.
            let waited = signal.changed.wait_timeout(woken, deadline.since(now));
            woken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *woken = false;
    }
}

/// A waker that does not use thread parking, so it cannot interfere with code that does.
#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
