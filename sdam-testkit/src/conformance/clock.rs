//! Checks of the clock contract.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    executor::block_on,
    future::{BoxFuture, try_join_all},
};
use sdam_core::time::Instant;

use super::{Outcome, Run, ensure};
use sdam_transport::{race, runtime::Backend, spawn::yield_now};

pub(super) async fn now_never_goes_backwards(backend: Backend, run: Run) -> Outcome {
    let mut last = backend.clock.now();
    for round in 0..1000 {
        run.step("calling `now` again on the same thread");
        let now = backend.clock.now();
        ensure!(now >= last, "`now` returned {now:?} after {last:?}");
        last = now;
        // A thread must not read an earlier time than another thread has read before.
        if round % 100 == 0 {
            run.step("calling `now` on another thread");
            let clock = Arc::clone(&backend.clock);
            let later = run.on_own_thread(move || clock.now()).await?;
            ensure!(later >= last, "`now` returned {later:?} after {last:?}");
            last = later;
        }
    }
    Ok(())
}

pub(super) async fn past_deadlines_are_ready_at_once(backend: Backend, run: Run) -> Outcome {
    run.step("polling a timer of a past deadline once");
    let now = backend.clock.now();
    for past in [Instant::EPOCH, now - Duration::from_secs(1), now] {
        let ready = backend.clock.sleep_until(past).now_or_never();
        ensure!(ready.is_some(), "a timer of {past:?} is pending at {now:?}");
    }
    Ok(())
}

pub(super) async fn timers_are_never_early(backend: Backend, run: Run) -> Outcome {
    let start = backend.clock.now();
    run.step("waiting for timers of 1 to 31 milliseconds");
    // A blocking clock waits for the timers one after another.
    try_join_all([1, 10, 20, 30, 31].map(|millis| {
        let deadline = start + Duration::from_millis(millis);
        let timer = backend.clock.sleep_until(deadline);
        let clock = Arc::clone(&backend.clock);
        async move {
            timer.await;
            let now = clock.now();
            ensure!(now >= deadline, "a timer of {deadline:?} was ready at {now:?}");
            Ok(())
        }
    }))
    .await
    .map(drop)
}

pub(super) async fn a_future_that_wakes_itself_wins_its_race(
    backend: Backend,
    run: Run,
) -> Outcome {
    run.step("racing a future that wakes itself with a timer");
    let deadline = backend.clock.now() + Duration::from_secs(2);
    let waking = async {
        for _ in 0..10 {
            yield_now().await;
        }
    };
    let outcome = race::deadline(&*backend.clock, Some(deadline), waking).await;
    ensure!(outcome.is_ok(), "the timer blocks the future");
    Ok(())
}

pub(super) async fn a_timer_may_move_to_another_thread(backend: Backend, run: Run) -> Outcome {
    // On a slow machine, a short timer may be ready before it is moved. That does not count as a
    // failure.
    for millis in [20, 200, 2000] {
        let deadline = backend.clock.now() + Duration::from_millis(millis);
        let mut timer: BoxFuture<'static, ()> = backend.clock.sleep_until(deadline);
        run.step("polling a timer for the first time");
        let _ = timer.as_mut().now_or_never();
        run.step("waiting for a timer on another thread");
        let moved = run.on_own_thread(move || {
            let pending = timer.as_mut().now_or_never().is_none();
            if pending {
                block_on(timer);
            }
            pending
        });
        let moved = moved.await?;
        ensure!(backend.clock.now() >= deadline, "the timer was ready early");
        if moved {
            break;
        }
    }
    Ok(())
}

pub(super) async fn timers_may_be_dropped_before_they_are_ready(
    backend: Backend,
    run: Run,
) -> Outcome {
    let far = backend.clock.now() + Duration::from_secs(3600);
    for deadline in [far, Instant::MAX] {
        run.step("polling timers of far deadlines");
        let mut here = backend.clock.sleep_until(deadline);
        let mut there = backend.clock.sleep_until(deadline);
        for timer in [&mut here, &mut there] {
            ensure!(timer.now_or_never().is_none(), "a timer of {deadline:?} is ready early");
        }
        run.step("dropping a pending timer on the same thread");
        drop(here);
        run.step("dropping a pending timer on another thread");
        run.on_own_thread(move || drop(there)).await?;
    }
    Ok(())
}
