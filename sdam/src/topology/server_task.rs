//! The task of one server: its connections and its timer.

use std::{future::poll_fn, mem, sync::Arc, task::Poll};

use sdam_core::{
    deployment::{ConnId, Role, Timer},
    time::Instant,
};
use sdam_transport::clock::DeadlineTimer;

use super::shared::Shared;
use crate::{
    engine::{
        orders::{Action, News, Order},
        server::Server,
    },
    monitor::{connection::Answer, links::Links},
};

/// The reasons for a wake-up, the most urgent first.
enum Next {
    News(News),
    Answer(ConnId, Answer),
    Due,
}

/// The task that checks a server. It is counted among the topology's tasks until it is dropped.
#[derive(Debug)]
pub(super) struct ServerTask {
    shared: Arc<Shared>,
    server: Arc<Server>,
    /// True once the server has left the topology.
    is_finished: bool,
}

impl ServerTask {
    /// Creates the task of `server`, which is not running yet.
    pub(super) fn new(shared: Arc<Shared>, server: Arc<Server>) -> Self {
        shared.task_begins();
        Self { shared, server, is_finished: false }
    }

    /// Checks the server until it leaves the topology.
    pub(super) async fn run(mut self) {
        let mut links = Links::default();
        let mut timer = DeadlineTimer::default();
        // The first check is due at once.
        let mut deadline = Some(Instant::EPOCH);
        loop {
            let next = self.next(&mut links, &mut timer, deadline);
            deadline = match next.await {
                Next::News(mut news) => {
                    for order in mem::take(&mut news.orders) {
                        self.execute(order, &mut links);
                    }
                    if news.end {
                        break;
                    }
                    self.read(&news, deadline)
                }
                Next::Answer(conn, answer) => {
                    if conn.role == Role::Check {
                        self.server.set_connecting(None);
                    }
                    // The answer is parsed here, before the engine is locked.
                    self.shared.answered(conn.server, answer.parsed(conn))
                }
                Next::Due => self.shared.due(self.server.id()),
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
    ) -> Next {
        let clock = &*self.shared.common.backend.clock;
        poll_fn(|cx| {
            if let Poll::Ready(news) = self.server.orders.poll(cx) {
                return Poll::Ready(Next::News(news));
            }
            if let Poll::Ready((conn, answer)) = links.poll(|| clock.now(), cx) {
                return Poll::Ready(Next::Answer(conn, answer));
            }
            timer.poll(clock, deadline, cx).map(|()| Next::Due)
        })
        .await
    }

    /// Returns the deadline after `news` was applied; `before` if it is unchanged.
    fn read(&self, news: &News, before: Option<Instant>) -> Option<Instant> {
        let server = self.server.id();
        if news.check {
            self.shared.check_requested(server)
        } else if news.look {
            self.shared.deadline(Timer::Server(server))
        } else {
            before
        }
    }

    fn execute(&self, Order { conn, action }: Order, links: &mut Links) {
        let opens = matches!(action, Action::Connect { .. });
        if opens && conn.role == Role::Check {
            let now = self.shared.common.backend.clock.now();
            self.server.set_connecting(Some(now));
        }
        let act = |connection: &mut _| self.shared.execute(action, &self.server, connection);
        if opens {
            links.connect(conn, act);
        } else {
            links.on(conn, act);
        }
    }
}

impl Drop for ServerTask {
    /// Ends the checks of a server whose task is dropped by its runtime.
    fn drop(&mut self) {
        if !self.is_finished {
            // Must come first, so that readers woken below see that the task is gone.
            self.server.abandon();
            self.shared.deserted(self.server.id());
            self.shared.wake_readers();
        }
        self.shared.task_ended();
    }
}
