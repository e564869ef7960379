//! The tasks of a topology, and their count. Each server has a task with its connections and its
//! timer. Another task polls the SRV record (Polling SRV Records for mongos Discovery).

use std::{
    future::poll_fn,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use futures::future::{self, FutureExt};
use sdam_core::{
    deployment::{Input, Output, Role, Timer},
    time::Instant,
};
use sdam_transport::clock::DeadlineTimer;

use crate::{
    engine::{
        Engine,
        server::{News, Server},
        snapshot::Snapshot,
    },
    monitor::Links,
    sync::{
        Event,
        atomic::{AtomicUsize, Ordering},
        listen,
    },
};

/// The reasons for a wake-up, the most urgent first.
enum Next {
    News(News),
    Answer(Input),
    Due,
}

/// The task that checks a server. It is counted among the topology's tasks until it is dropped.
#[derive(Debug)]
pub(crate) struct ServerTask {
    engine: Arc<Engine>,
    server: Arc<Server>,
    /// True once the server has left the topology.
    is_finished: bool,
}

impl ServerTask {
    /// Creates the task of `server`, which is not running yet.
    pub(crate) fn new(engine: Arc<Engine>, server: Arc<Server>) -> Self {
        engine.task_begins();
        Self { engine, server, is_finished: false }
    }

    /// Checks the server until it leaves the topology.
    pub(crate) async fn run(mut self) {
        let mut links = Links::default();
        let mut timer = DeadlineTimer::default();
        // The first check is due at once.
        let mut deadline = Some(Instant::EPOCH);
        // True if the first check has just begun to wait for the server.
        let mut waits = false;
        loop {
            let next = self.next(&mut links, &mut timer, deadline, &mut waits);
            deadline = match next.await {
                Next::News(mut news) => {
                    for order in mem::take(&mut news.orders) {
                        if let Output::Connect { conn, .. } = &order
                            && conn.role == Role::Check
                        {
                            let now = self.engine.now();
                            self.server.set_connecting(Some(now));
                        }
                        waits |= self.engine.is_wait(&order) && self.server.set_under_way();
                        links.carry_out(order, &self.engine, &self.server);
                    }
                    if news.end {
                        break;
                    }
                    self.read(&news, deadline)
                }
                Next::Answer(answer) => {
                    if answer.conn().is_some_and(|conn| conn.role == Role::Check) {
                        self.server.set_connecting(None);
                    }
                    self.engine.answered(self.server.id(), answer)
                }
                Next::Due => self.engine.due(self.server.id()),
            };
        }
        self.is_finished = true;
    }

    /// Waits for orders, requests, an answer, or the deadline.
    ///
    /// Orders precede answers, so that no answer is taken from a connection that an order closes.
    /// Answers precede the deadline, so that a reply that arrived while the host was suspended is
    /// not treated as late.
    async fn next(
        &self,
        links: &mut Links,
        timer: &mut DeadlineTimer,
        deadline: Option<Instant>,
        waits: &mut bool,
    ) -> Next {
        let clock = &*self.engine.common.backend.clock;
        poll_fn(|cx| {
            if let Poll::Ready(news) = self.server.orders.poll(cx) {
                return Poll::Ready(Next::News(news));
            }
            if let Poll::Ready(answer) = links.poll(|| clock.now(), cx) {
                return Poll::Ready(Next::Answer(answer));
            }
            if mem::take(waits) {
                // The panic hook has reported a pool's panic.
                let _ = self.engine.prepare_pools();
            }
            timer.poll(clock, deadline, cx).map(|()| Next::Due)
        })
        .await
    }

    /// Returns the deadline after `news` was applied; `before` if it is unchanged.
    fn read(&self, news: &News, before: Option<Instant>) -> Option<Instant> {
        let server = self.server.id();
        if news.check {
            self.engine.check_requested(server)
        } else if news.look {
            self.engine.deadline(Timer::Server(server))
        } else {
            before
        }
    }
}

impl Drop for ServerTask {
    /// Ends the checks of a server whose task is dropped by its runtime.
    fn drop(&mut self) {
        if !self.is_finished {
            // Must come first, so that readers woken below see that the task is gone.
            self.server.abandon();
            self.engine.deserted(self.server.id());
            self.engine.wake_readers();
        }
        self.engine.task_ended();
    }
}

/// The task that polls the SRV record. It is separate, so that look-ups delay no other task (N-27),
/// and is counted among the topology's tasks until it is dropped.
#[derive(Debug)]
pub(super) struct SrvTask(Arc<Engine>);

impl SrvTask {
    /// Creates the task, if the topology polls a record.
    pub(super) fn new(engine: &Arc<Engine>) -> Option<Self> {
        engine.deadline(Timer::Srv)?;
        engine.task_begins();
        Some(Self(Arc::clone(engine)))
    }

    /// Polls until the topology is closed, or has a type for which the record is never polled
    /// again.
    pub(super) async fn run(self) {
        let other = |snapshot: &Snapshot| {
            let polls = snapshot.description.topology_type().polls_srv();
            (!polls).then_some(())
        };
        let end = pin!(self.0.wait_for(other, None));
        future::select(end, pin!(self.poll())).await;
    }

    async fn poll(&self) {
        while let Some(next) = self.0.deadline(Timer::Srv) {
            self.0.common.backend.clock.sleep_until(next).await;
            let (timer, wanted) = (Timer::Srv, false);
            let output = self.0.ask(Input::Due { timer, wanted });
            if let Some(input) = self.0.look_up(output).await {
                // New hosts are applied even if a pool panics because of them, and the panic hook
                // has reported the panic.
                let _ = catch_unwind(AssertUnwindSafe(|| self.0.handle(input)));
            }
        }
    }
}

impl Drop for SrvTask {
    fn drop(&mut self) {
        self.0.task_ended();
    }
}

/// The increment for one task.
const TASK: usize = 2;

/// The flag that is set on closing.
const CLOSED: usize = 1;

/// Counts the tasks of a topology, so that closing can wait for the last of them.
///
/// Closing and the end of the last task may race. Both change the same integer, so exactly one of
/// them observes that no task remains. This task or thread sees everything that the others did
/// before, because each change has release ordering.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// `TASK` for each live task, plus `CLOSED` after closing.
    state: AtomicUsize,
    ended: Event,
}

impl Tasks {
    /// Counts a task that is about to be spawned. After [`close`](Self::close), only a counted task
    /// may start another one.
    pub(crate) fn begin(&self) {
        // Relaxed suffices: the topology's lock, or the task that starts this one, orders the count
        // before closing, and spawning orders it before the end.
        self.state.fetch_add(TASK, Ordering::Relaxed);
    }

    /// Counts a task's end. Returns whether no task is left after [`close`](Self::close).
    pub(crate) fn end(&self) -> bool {
        // Acquire is not needed: the last task notifies, which begins with a full fence.
        let before = self.state.fetch_sub(TASK, Ordering::Release);
        if before / TASK == 1 {
            self.ended.notify(usize::MAX);
        }
        before == TASK | CLOSED
    }

    /// Refuses further tasks. Returns whether no task is alive.
    pub(crate) fn close(&self) -> bool {
        self.state.fetch_or(CLOSED, Ordering::AcqRel) / TASK == 0
    }

    /// Waits until no task is alive.
    pub(crate) async fn finished(&self) {
        loop {
            let ended = listen(&self.ended).fuse();
            if self.state.load(Ordering::Acquire) / TASK == 0 {
                return;
            }
            ended.await;
        }
    }
}
