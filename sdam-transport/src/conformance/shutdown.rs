//! What is left of a runtime's promises when it has shut down.

use std::{future, sync::mpsc, time::Duration};

use futures::{FutureExt as _, executor::block_on, future::BoxFuture};
use sdam_core::time::Instant;

use super::{
    Outcome,
    connection::open,
    ensure,
    peer::{Peer, listen, wait_for_close},
};
use crate::{connect::Connection, race, runtime::Runtime, spawn::Task};

/// What was alive before the runtime was shut down.
pub(super) struct Live {
    /// Disconnected when every task has been dropped.
    tasks: mpsc::Receiver<()>,
    timer: BoxFuture<'static, ()>,
    deadline: Instant,
    connection: Box<dyn Connection>,
    peers: [Peer<()>; 2],
}

impl Live {
    /// Starts tasks that would go on for ever, and keeps a timer and a connection outside them.
    pub(super) fn start(runtime: &Runtime) -> Result<Self, String> {
        let (started, tasks) = mpsc::channel();
        let io = &runtime.io;
        let peers = [Peer::start(wait_for_close)?, Peer::start(wait_for_close)?];
        let mut receiving = block_on(open(io, &peers[0].address))?;
        let connection = block_on(open(io, &peers[1].address))?;
        let sleep = io
            .clock
            .sleep_until(io.clock.now() + Duration::from_secs(3600));
        let waits: [BoxFuture<'static, ()>; 3] = [
            Box::pin(future::pending()),
            sleep,
            Box::pin(async move { drop(receiving.recv().await) }),
        ];
        for mut wait in waits {
            let started = started.clone();
            runtime.spawner.spawn(Task::new("conformance", async move {
                // The first poll registers with the runtime.
                let _ = wait.as_mut().now_or_never();
                // The check is over if nobody listens.
                let _ = started.send(());
                wait.await;
            }));
        }
        for _ in 0..3 {
            tasks.recv().map_err(|_| "a task was dropped at once")?;
        }
        let deadline = io.clock.now() + Duration::from_millis(100);
        let mut timer = io.clock.sleep_until(deadline);
        let _ = timer.as_mut().now_or_never();
        Ok(Self {
            tasks,
            timer,
            deadline,
            connection,
            peers,
        })
    }

    /// Checks that the tasks are gone and that nothing else panics, hangs or comes early.
    pub(super) fn check_after(mut self, runtime: &Runtime) -> Outcome {
        ensure!(self.tasks.recv().is_err(), "nobody sent anything");

        let (guard, later) = mpsc::channel::<()>();
        runtime.spawner.spawn(Task::new("late", async move {
            // The check has failed if anybody listens.
            let _ = guard.send(());
        }));
        ensure!(
            later.recv().is_err(),
            "a task ran after the runtime had ended"
        );

        let clock = &runtime.io.clock;
        block_on(self.timer);
        ensure!(
            clock.now() >= self.deadline,
            "a timer from before came early"
        );
        let deadline = clock.now() + Duration::from_millis(20);
        block_on(clock.sleep_until(deadline));
        ensure!(clock.now() >= deadline, "a timer from after came early");

        // Sockets may work on or fail, but not panic or hang.
        let soon = Some(clock.now() + Duration::from_millis(20));
        let received = block_on(race::deadline(&**clock, soon, self.connection.recv()));
        ensure!(!matches!(received, Ok(Ok(_))), "nobody sent anything");
        let (_listener, address) = listen()?;
        drop(block_on(runtime.io.transport.connect(&address, soon)));

        drop(self.connection);
        self.peers.into_iter().try_for_each(Peer::finish)
    }
}
