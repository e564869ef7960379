//! The task that monitors one server: runs the effects of the monitor machine.

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
    options::MIN_HEARTBEAT_FREQUENCY,
};
use sdam_transport::spawn::Task;

use crate::{
    alarm::Alarm,
    cell::TopologyCell,
    link::{Answer, Link},
    mailbox::Mail,
    rtt,
    server::Server,
};

/// The reason of a wake-up, most urgent first.
enum Wake {
    Mail(Mail),
    Answer(Answer),
    Deadline,
}

/// The monitor of a server; counts as a task of the topology until it is dropped.
#[derive(Debug)]
pub(crate) struct Monitor {
    cell: Arc<TopologyCell>,
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

impl Monitor {
    /// Creates the monitor of `server`, which is not running yet.
    pub(crate) fn new(cell: Arc<TopologyCell>, server: Arc<Server>) -> Self {
        cell.monitors.begin();
        let address = server.core.address.clone();
        let machine = MonitorMachine::new(Arc::clone(&cell.config), server.id(), address);
        Self {
            cell,
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
                    self.cell.events.push(self.cell.now(), event);
                }
            }
            self.cell.apply(Input::MonitorDied {
                server: self.server.id(),
            });
        }));
    }

    /// Waits for `minHeartbeatFrequencyMS`, or until the monitor is stopped.
    async fn pause(&self) {
        let clock = &self.cell.runtime.io.clock;
        let mut timer = clock.sleep_until(clock.now() + MIN_HEARTBEAT_FREQUENCY);
        poll_fn(|cx| {
            let mail = self.server.mailbox.poll(cx).is_ready();
            if mail && self.server.mailbox.is_stopped() {
                return Poll::Ready(());
            }
            timer.as_mut().poll(cx)
        })
        .await;
    }

    async fn watch(&mut self) {
        if self.server.mailbox.is_stopped() {
            return;
        }
        let mut link = Link::default();
        let mut alarm = Alarm::default();
        let mut effects = self.machine.start(self.cell.now(), self.server.status());
        loop {
            if self.execute(effects, &mut link) {
                return;
            }
            // The machine ignores the request unless it is idle.
            if self.cell.demand.is_pressing() {
                effects = self.handle(MonitorInput::CheckRequested);
                if self.execute(effects, &mut link) {
                    return;
                }
            }
            effects = match self.wait(&mut link, &mut alarm).await {
                Wake::Mail(mail) => self.read(mail, &mut link),
                Wake::Deadline => self.handle(MonitorInput::DeadlineReached),
                Wake::Answer(Answer::Connected) => self.handle(MonitorInput::Connected),
                Wake::Answer(Answer::Failed(error)) => self.handle(MonitorInput::Failed(error)),
                Wake::Answer(Answer::Reply {
                    message,
                    more_to_come,
                }) => {
                    let bytes = message.body();
                    self.handle(MonitorInput::Reply {
                        bytes,
                        more_to_come,
                    })
                }
            };
        }
    }

    /// Mail comes before answers, so that a control message precedes a new check. Answers come
    /// before the deadline, so that a reply that arrived while the host was suspended counts.
    async fn wait(&self, link: &mut Link, alarm: &mut Alarm) -> Wake {
        let deadline = self.machine.deadline();
        let clock = &*self.cell.runtime.io.clock;
        poll_fn(|cx| {
            if let Poll::Ready(mail) = self.server.mailbox.poll(cx) {
                return Poll::Ready(Wake::Mail(mail));
            }
            if let Poll::Ready(answer) = link.poll(cx) {
                return Poll::Ready(Wake::Answer(answer));
            }
            alarm.poll(clock, deadline, cx).map(|()| Wake::Deadline)
        })
        .await
    }

    /// Handles mail, and returns the effects of its last message; the others are executed.
    fn read(&mut self, mail: Mail, link: &mut Link) -> MonitorEffects {
        if mail.stop {
            return self.handle(MonitorInput::Stop);
        }
        let mut effects = MonitorEffects::default();
        if let Some(generation) = mail.cancel {
            effects = self.handle(MonitorInput::Cancel { generation });
        }
        if mail.check {
            self.execute(effects, link);
            effects = self.handle(MonitorInput::CheckRequested);
        }
        effects
    }

    fn handle(&mut self, input: MonitorInput<'_>) -> MonitorEffects {
        self.machine
            .handle(self.cell.now(), self.server.status(), input)
    }

    /// Runs effects in order. Returns whether the last one was [`MonitorEffect::Exit`].
    fn execute(&self, effects: MonitorEffects, link: &mut Link) -> bool {
        let mut exit = false;
        for effect in effects {
            match effect {
                MonitorEffect::Connect { deadline } => {
                    let (io, options) = (&self.cell.runtime.io, &self.cell.options);
                    link.connect(io, options, &self.server.core.address, deadline);
                }
                MonitorEffect::Send { request, deadline } => {
                    link.send(self.cell.introduction.renew(request), deadline);
                }
                MonitorEffect::ReadNext { deadline } => link.read_next(deadline),
                MonitorEffect::Disconnect => link.disconnect(),
                MonitorEffect::RttSample(sample) => self.server.rtt().add(sample),
                MonitorEffect::Report { outcome } => {
                    let rtt = self.server.rtt().rtt();
                    self.cell.apply(Input::Checked {
                        server: self.server.id(),
                        outcome,
                        rtt,
                    });
                }
                MonitorEffect::StartRtt => self.start_rtt(),
                MonitorEffect::StopRtt => self.server.stop_rtt_task(),
                MonitorEffect::Emit(event) => self.cell.events.push(self.cell.now(), event),
                MonitorEffect::Exit => exit = true,
            }
        }
        exit
    }

    fn start_rtt(&self) {
        if let Some(mailbox) = self.server.begin_rtt_task() {
            let task = rtt::run(Arc::clone(&self.cell), Arc::clone(&self.server), mailbox);
            self.cell.runtime.spawner.spawn(Task::new("sdam-rtt", task));
        }
    }
}

impl Drop for Monitor {
    /// Ends the heartbeat and reports the death of a monitor that its runtime drops.
    fn drop(&mut self) {
        if self.stage != Stage::Finished {
            // Must come first, so that readers woken below see that the monitor is gone.
            self.server.abandon();
            if self.stage == Stage::Watching {
                self.die();
            }
            self.cell.changed.notify(usize::MAX);
        }
        self.cell.monitor_ended();
    }
}
