//! The background task of a pool, which opens and closes connections.

use std::{
    future::poll_fn,
    mem,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
};

use futures::future::{self, BoxFuture, FutureExt};
use sdam_transport::{clock::DeadlineTimer, connect::Connection};

use crate::{
    inner::{EarlySocket, Inner},
    machine::Work,
};

/// The background task of a pool. If it is dropped before it ends, whether or not it was ever
/// polled, all check-outs fail.
pub(crate) struct Worker {
    pool: Weak<Inner>,
    /// Attempts to open connections, at most `maxConnecting`.
    attempts: Vec<(u64, BoxFuture<'static, ()>)>,
    early: Early,
    timer: DeadlineTimer,
    has_ended: bool,
}

/// The socket that is opened before the pool is ready.
#[derive(Default)]
enum Early {
    #[default]
    None,
    Dialing(EarlySocket),
    Open(Box<dyn Connection>),
}

impl Worker {
    /// Creates the worker of `pool`. The worker does not keep the pool alive.
    pub(crate) fn new(pool: Weak<Inner>) -> Self {
        let (attempts, timer) = (Vec::new(), DeadlineTimer::default());
        Self { pool, attempts, early: Early::None, timer, has_ended: false }
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
                Work::Dial => self.early = Early::Dialing(pool.dial_early()),
                Work::DropEarly => self.early = Early::None,
                Work::Open(id) => {
                    let early = match mem::take(&mut self.early) {
                        Early::Open(socket) => Some(future::ready(Some(socket)).boxed()),
                        Early::Dialing(dialing) => Some(dialing),
                        Early::None => None,
                    };
                    self.attempts.push((id, guarded(pool.open(id, early))));
                }
                Work::Wait(deadline) => {
                    let clock = Arc::clone(&pool.context.backend.clock);
                    drop(pool);
                    if !self.poll_attempts(cx) && !self.poll_early(cx) {
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

    /// Polls the early socket. Returns whether it has just been opened or has failed.
    fn poll_early(&mut self, cx: &mut Context<'_>) -> bool {
        let Early::Dialing(dialing) = &mut self.early else {
            return false;
        };
        let Poll::Ready(socket) = dialing.poll_unpin(cx) else {
            return false;
        };
        let is_open = socket.is_some();
        self.early = socket.map_or(Early::None, Early::Open);
        if let Some(pool) = self.pool.upgrade() {
            let now = pool.clock().now();
            pool.core.with(|machine| machine.dialed_early(is_open, now));
        }
        true
    }

    /// Polls all attempts, of which there are only a few. Returns whether one of them has ended.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.attempts.len();
        self.attempts.retain_mut(|(_, attempt)| attempt.poll_unpin(cx).is_pending());
        self.attempts.len() < before
    }
}

/// Runs an attempt to open a connection; if it panics, only this attempt ends.
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
