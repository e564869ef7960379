//! What a clock promises.

use std::{future::poll_fn, sync::Arc, task::Poll, thread, time::Duration};

use futures::{FutureExt as _, executor::block_on, future::BoxFuture};
use sdam_core::time::Instant;

use super::{Outcome, elsewhere, ensure};
use crate::runtime::Io;

pub(super) async fn now_never_goes_backwards(io: Io) -> Outcome {
    let mut last = io.clock.now();
    for round in 0..1000 {
        let now = io.clock.now();
        ensure!(now >= last, "{now:?} came after {last:?}");
        last = now;
        // What one thread has seen, no other thread may see undone.
        if round % 100 == 0 {
            let clock = Arc::clone(&io.clock);
            let later = thread::spawn(move || clock.now()).join();
            let later = later.map_err(|_| "now() panicked".to_owned())?;
            ensure!(
                later >= last,
                "{later:?} came after {last:?}, on another thread"
            );
            last = later;
        }
    }
    Ok(())
}

pub(super) async fn past_deadlines_are_ready_at_once(io: Io) -> Outcome {
    let now = io.clock.now();
    for past in [Instant::EPOCH, now - Duration::from_secs(1), now] {
        let ready = io.clock.sleep_until(past).now_or_never();
        ensure!(
            ready.is_some(),
            "a deadline of {past:?} is pending at {now:?}"
        );
    }
    Ok(())
}

pub(super) async fn timers_are_ready_in_order_and_never_early(io: Io) -> Outcome {
    let start = io.clock.now();
    // Latest first, so that an earlier timer is always looked at after a later one.
    let mut timers: Vec<(Instant, Option<BoxFuture<'static, ()>>)> = [31, 30, 20, 10, 1]
        .map(|millis| start + Duration::from_millis(millis))
        .map(|deadline| (deadline, Some(io.clock.sleep_until(deadline))))
        .into();
    poll_fn(|cx| {
        let mut ready = None;
        for (deadline, slot) in &mut timers {
            let Some(timer) = slot else { continue };
            match (timer.as_mut().poll(cx), ready) {
                (Poll::Ready(()), _) => {
                    let now = io.clock.now();
                    if now < *deadline {
                        return Poll::Ready(Err(format!("{deadline:?} was ready at {now:?}")));
                    }
                    ready = Some(*deadline);
                    *slot = None;
                }
                (Poll::Pending, Some(later)) => {
                    let deadline = *deadline;
                    return Poll::Ready(Err(format!("{later:?} was ready before {deadline:?}")));
                }
                (Poll::Pending, None) => {}
            }
        }
        if timers.iter().all(|(_, timer)| timer.is_none()) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await
}

pub(super) async fn a_timer_may_move_to_another_thread(io: Io) -> Outcome {
    let deadline = io.clock.now() + Duration::from_millis(20);
    let mut timer = io.clock.sleep_until(deadline);
    let _ = timer.as_mut().now_or_never();
    elsewhere(move || block_on(timer)).await?;
    ensure!(io.clock.now() >= deadline, "it was ready early");
    Ok(())
}

pub(super) async fn timers_may_be_dropped_before_they_are_ready(io: Io) -> Outcome {
    let far = io.clock.now() + Duration::from_secs(3600);
    for deadline in [far, Instant::MAX] {
        let mut here = io.clock.sleep_until(deadline);
        let mut there = io.clock.sleep_until(deadline);
        for timer in [&mut here, &mut there] {
            ensure!(
                timer.now_or_never().is_none(),
                "{deadline:?} is ready already"
            );
        }
        drop(here);
        elsewhere(move || drop(there)).await?;
    }
    Ok(())
}
