//! The task that monitors one server.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
};

use futures::future::FutureExt;
use sdam_core::{
    machine::Input,
    monitor::{MonitorEffect, MonitorEffects, MonitorInput, MonitorMachine},
    time::Instant,
};

use super::{
    MonitorHost,
    connection::{Answer, MonitorConnection},
    execute,
    timer::DeadlineTimer,
};
use crate::engine::{control::Signals, server::Server};

/// The reason of a wake-up, most urgent first.
enum Wake {
    Control(Signals),
    Answer(Answer),
    Deadline,
}

/// The monitor of a server; counts as a task of the topology until it is dropped.
#[derive(Debug)]
pub(crate) struct Monitor<H: MonitorHost> {
    host: Arc<H>,
    server: Arc<Server>,
    machine: MonitorMachine,
    stage: Stage,
}

/// The life-cycle stage of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its task has not been polled yet.
    Spawned,
    Watching,
    /// It has ended because it was stopped.
    Finished,
}

impl<H: MonitorHost> Monitor<H> {
    /// Creates the monitor of `server`, which is not running yet.
    pub(crate) fn new(host: Arc<H>, server: Arc<Server>) -> Self {
        host.task_begins();
        let address = server.core.address.clone();
        let machine = MonitorMachine::new(Arc::clone(host.config()), server.id(), address);
        Self {
            host,
            server,
            machine,
            stage: Stage::Spawned,
        }
    }

    /// Watches the server until it leaves the topology.
    ///
    /// A pool or a transport that panics ends the check that met it. The watch then starts over, in
    /// the same task: a destructor would have to spawn another one.
    pub(crate) async fn run(mut self) {
        self.stage = Stage::Watching;
        // Unwind safety: the connection and the machine, the only incomplete state, are discarded.
        while AssertUnwindSafe(self.watch()).catch_unwind().await.is_err() {
            self.die();
            self.machine = self.machine.successor();
            self.pause().await;
        }
        self.finish();
    }

    /// Marks the monitor as ended, so that its drop is no loss.
    fn finish(mut self) {
        self.stage = Stage::Finished;
    }

    /// Ends the heartbeat of a panicked monitor and reports its death to the topology.
    fn die(&mut self) {
        // The pool may panic again; the panic hook has reported that, too.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // The restarted monitor decides anew whether to stream.
            self.server.stop_rtt_task();
            for effect in self.handle(MonitorInput::Stop) {
                if let MonitorEffect::Emit(event) = effect {
                    self.host.events().push(self.host.now(), event);
                }
            }
            self.host.apply(Input::MonitorDied {
                server: self.server.id(),
            });
        }));
    }

    /// Waits for `minHeartbeatFrequencyMS`, or until the monitor is stopped.
    async fn pause(&self) {
        let clock = &self.host.io().clock;
        let pause = self.host.config().min_heartbeat_frequency;
        let mut timer = clock.sleep_until(clock.now() + pause);
        poll_fn(|cx| {
            // Only a pending poll registers the waker. Other signals mean nothing to a monitor that
            // starts over.
            while let Poll::Ready(signals) = self.server.control.poll(cx) {
                if signals.stop {
                    return Poll::Ready(());
                }
            }
            timer.as_mut().poll(cx)
        })
        .await;
    }

    async fn watch(&mut self) {
        if self.server.control.is_stopped() {
            return;
        }
        let mut connection = MonitorConnection::default();
        let mut timer = DeadlineTimer::default();
        let mut effects = self.machine.start(self.host.now(), self.server.status());
        loop {
            if self.execute(effects, &mut connection) {
                return;
            }
            // The selections that wait now may be served by the report that was just executed, so
            // their request is passed on when a check may begin, if any are waiting then.
            let earliest = self.machine.earliest_check();
            let earliest = earliest.filter(|_| self.host.is_check_wanted());
            effects = match self.wait(&mut connection, &mut timer, earliest).await {
                Wake::Control(signals) => self.read(signals, &mut connection),
                Wake::Deadline if earliest.is_some() && self.host.is_check_wanted() => {
                    self.handle(MonitorInput::CheckRequested)
                }
                Wake::Deadline => self.handle(MonitorInput::DeadlineReached),
                Wake::Answer(Answer::Connected) => self.handle(MonitorInput::Connected),
                Wake::Answer(Answer::Failed { at, error }) => {
                    self.handle(MonitorInput::Failed { at, error })
                }
                Wake::Answer(Answer::Reply(reply)) => {
                    let input = reply.parse();
                    self.handle(input)
                }
            };
        }
    }

    /// Waits until `earliest`, or else for the deadline of the machine.
    ///
    /// Control signals come before answers, so that they precede a new check. Answers come
    /// before the deadline, so that a reply that arrived while the host was suspended counts.
    async fn wait(
        &self,
        connection: &mut MonitorConnection,
        timer: &mut DeadlineTimer,
        earliest: Option<Instant>,
    ) -> Wake {
        let deadline = earliest.or_else(|| self.machine.deadline());
        let clock = &*self.host.io().clock;
        poll_fn(|cx| {
            if let Poll::Ready(signals) = self.server.control.poll(cx) {
                return Poll::Ready(Wake::Control(signals));
            }
            if let Poll::Ready(answer) = connection.poll(cx) {
                return Poll::Ready(Wake::Answer(answer));
            }
            timer.poll(clock, deadline, cx).map(|()| Wake::Deadline)
        })
        .await
    }

    /// Handles signals, and returns the effects of the last one; the others are executed.
    fn read(&mut self, signals: Signals, connection: &mut MonitorConnection) -> MonitorEffects {
        if signals.stop {
            return self.handle(MonitorInput::Stop);
        }
        let mut effects = MonitorEffects::default();
        if let Some(generation) = signals.cancel {
            effects = self.handle(MonitorInput::Cancel { generation });
        }
        if signals.check {
            self.execute(effects, connection);
            effects = self.handle(MonitorInput::CheckRequested);
        }
        effects
    }

    fn handle(&mut self, input: MonitorInput) -> MonitorEffects {
        self.machine
            .handle(self.host.now(), self.server.status(), input)
    }

    /// Runs effects in order. Returns whether the last one was [`MonitorEffect::Exit`].
    fn execute(&self, effects: MonitorEffects, connection: &mut MonitorConnection) -> bool {
        execute(effects, &self.host, &self.server, connection)
    }
}

impl<H: MonitorHost> Drop for Monitor<H> {
    /// Ends the heartbeat and reports the death of a monitor that its runtime drops.
    fn drop(&mut self) {
        if self.stage != Stage::Finished {
            // Must come first, so that readers woken below see that the monitor is gone.
            self.server.abandon();
            if self.stage == Stage::Watching {
                self.die();
            }
            self.host.wake_readers();
        }
        self.host.task_ended();
    }
}
