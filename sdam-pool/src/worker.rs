//! The background task of a pool, which opens and closes connections.

use std::{
    future::poll_fn,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
};

use futures::future::{BoxFuture, FutureExt};
use sdam_transport::clock::DeadlineTimer;

use crate::{inner::Inner, machine::Work};

/// The background task of a pool. If it is dropped early, polled or not, all check-outs fail.
pub(crate) struct Worker {
    pool: Weak<Inner>,
    /// Attempts to open connections, at most `maxConnecting`.
    attempts: Vec<(u64, BoxFuture<'static, ()>)>,
    timer: DeadlineTimer,
    has_ended: bool,
}

impl Worker {
    /// Creates the worker of `pool`, which it does not keep alive.
    pub(crate) fn new(pool: Weak<Inner>) -> Self {
        Self { pool, attempts: Vec::new(), timer: DeadlineTimer::default(), has_ended: false }
    }

    /// Runs until the pool is closed or dropped.
    pub(crate) async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(pool) = self.pool.upgrade() else {
                self.has_ended = true;
                return Poll::Ready(());
            };
            let now = pool.clock().now();
            let mut waker = Some(cx.waker().clone());
            let work = pool.core.with(|machine| machine.work(now, &mut waker));
            drop(waker);
            match work {
                Work::Urgent(urgent) => pool.do_urgent(urgent),
                Work::Cancel => self.drop_cancelled(&pool),
                Work::Close(members, reason) => pool.close_members(members, reason),
                Work::Open(id) => self.attempts.push((id, guarded(pool.open(id)))),
                Work::Wait(deadline) => {
                    let clock = Arc::clone(&pool.context.backend.clock);
                    drop(pool);
                    if !self.poll_attempts(cx) {
                        ready!(self.timer.poll(&*clock, deadline, cx));
                    }
                }
                Work::End => {
                    self.has_ended = true;
                    return Poll::Ready(());
                }
            }
        }
    }

    fn drop_cancelled(&mut self, pool: &Arc<Inner>) {
        let is_cancelled = |id| pool.core.with(|machine| machine.is_cancelled(id));
        self.attempts.retain(|(id, _)| !is_cancelled(*id));
    }

    /// Polls all attempts, of which there are few. Returns whether one has ended.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.attempts.len();
        self.attempts.retain_mut(|(_, attempt)| attempt.poll_unpin(cx).is_pending());
        self.attempts.len() < before
    }
}

/// Runs an attempt; a panic ends only the attempt.
fn guarded(attempt: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
    // This is unwind safe, because the attempt and its connection, the only state that may be
    // inconsistent, are dropped.
    AssertUnwindSafe(attempt).catch_unwind().map(drop).boxed()
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // The runtime has ended or the task has panicked, so no connection can be opened any more.
        if let Some(pool) = self.pool.upgrade() {
            pool.runtime_shut_down();
        }
    }
}
