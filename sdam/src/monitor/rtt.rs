//! The task that measures round-trip times while a server streams.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};

use sdam_core::{
    hello::Hello,
    rtt::machine::{RttEffect, RttEffects, RttInput, RttMachine},
};

use super::{
    MonitorHost,
    connection::{Answer, MonitorConnection},
    timer::DeadlineTimer,
};
use crate::engine::{control::MonitorControl, server::Server};

/// Measures round-trip times until `control` is stopped.
pub(super) fn run<H: MonitorHost>(
    host: Arc<H>,
    server: Arc<Server>,
    control: Arc<MonitorControl>,
) -> impl Future<Output = ()> + Send + 'static {
    host.task_begins();
    let guard = Guard {
        host,
        server,
        control,
    };
    async move {
        let (host, server) = (&*guard.host, &*guard.server);
        let clock = &*host.io().clock;
        let mut machine = RttMachine::new(Arc::clone(host.config()));
        let mut connection = MonitorConnection::default();
        let mut timer = DeadlineTimer::default();
        let mut effects = machine.start(clock.now());
        while !execute(effects, host, server, &mut connection) {
            let deadline = machine.deadline();
            let answer = poll_fn(|cx| {
                if guard.control.poll(cx).is_ready() {
                    return Poll::Ready(Wake::Stop);
                }
                if let Poll::Ready(answer) = connection.poll(cx) {
                    return Poll::Ready(Wake::Answer(answer));
                }
                timer.poll(clock, deadline, cx).map(|()| Wake::Deadline)
            })
            .await;
            let now = clock.now();
            effects = match answer {
                Wake::Stop => machine.handle(now, RttInput::Stop),
                Wake::Deadline => machine.handle(now, RttInput::DeadlineReached),
                Wake::Answer(Answer::Connected) => machine.handle(now, RttInput::Connected),
                Wake::Answer(Answer::Failed { .. }) => machine.handle(now, RttInput::Failed),
                Wake::Answer(Answer::Reply(reply)) => machine.handle(
                    now,
                    RttInput::Reply {
                        sent: reply.sent,
                        at: reply.at,
                        hello: Hello::parse(reply.message.body()),
                    },
                ),
            };
        }
    }
}

enum Wake {
    Stop,
    Answer(Answer),
    Deadline,
}

/// Runs effects in order. Returns whether the last one was [`RttEffect::Exit`].
fn execute<H: MonitorHost>(
    effects: RttEffects,
    host: &H,
    server: &Server,
    connection: &mut MonitorConnection,
) -> bool {
    let mut exit = false;
    for effect in effects {
        match effect {
            RttEffect::Connect { deadline } => host.connect(server, connection, deadline),
            RttEffect::Send { request, deadline } => {
                connection.send(host.renew(request), deadline);
            }
            RttEffect::Disconnect => connection.disconnect(),
            RttEffect::Sample(sample) => server.rtt().add(sample),
            RttEffect::Exit => exit = true,
        }
    }
    exit
}

/// A guard that counts the end of the task, however it ends.
struct Guard<H: MonitorHost> {
    host: Arc<H>,
    server: Arc<Server>,
    control: Arc<MonitorControl>,
}

impl<H: MonitorHost> Drop for Guard<H> {
    fn drop(&mut self) {
        self.server.rtt_task_ended(&self.control);
        self.host.task_ended();
    }
}
