//! Models of threads that wait for each other, whose interleavings `cargo xtask loom` explores.
//!
//! Loom's condition variables never time out, so only notifications end a wait here.

use std::{
    future::{poll_fn, ready},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures::future::{BoxFuture, FutureExt as _};
use loom::{
    future::block_on,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use sdam_core::time::{Instant, UnixTime};
use sdam_events::sync::{AtomicWaker, explore};

use crate::{
    clock::Clock,
    race,
    system::{Epoch, ThreadClock},
};

/// A clock whose timers block, and whose time stands still.
#[derive(Debug)]
struct Blocking;

impl Clock for Blocking {
    fn now(&self) -> Instant {
        Instant::EPOCH
    }

    fn wall(&self) -> UnixTime {
        UnixTime::default()
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    fn blocks(&self) -> bool {
        true
    }
}

/// Begins a timer that is never due.
fn begin(clock: &ThreadClock) -> BoxFuture<'static, ()> {
    let mut timer = clock.sleep_until(Instant::MAX);
    assert!(timer.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending());
    timer
}

#[test]
fn a_blocked_thread_is_woken_whenever_its_future_becomes_ready() {
    explore(None, || {
        let done = Arc::new((AtomicBool::new(false), AtomicWaker::new()));
        let other = Arc::clone(&done);
        thread::spawn(move || {
            other.0.store(true, Ordering::Relaxed);
            other.1.wake();
        });
        let future = poll_fn(|cx| {
            done.1.register(cx.waker());
            if done.0.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        });
        let ended = block_on(race::deadline(&Blocking, Some(Instant::MAX), future));
        assert!(ended.is_ok());
    });
}

#[test]
fn every_pending_timer_is_watched_and_the_thread_ends_after_the_last() {
    // A thread that did not notice the end of the last timer would wait forever.
    explore(3, || {
        let clock = ThreadClock::new(Epoch::begin());
        let other = {
            let clock = clock.clone();
            thread::spawn(move || drop(begin(&clock)))
        };
        let timer = begin(&clock);
        other.join().unwrap();
        assert!(clock.is_watched());
        drop(timer);
    });
}
