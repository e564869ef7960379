//! The task that measures round-trip times while a server streams.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};

use sdam_core::rtt::machine::{RttEffect, RttEffects, RttInput, RttMachine};

use crate::{
    alarm::Alarm,
    cell::TopologyCell,
    link::{Answer, Link},
    mailbox::Mailbox,
    server::Server,
};

/// Measures round-trip times until `mailbox` is stopped.
pub(crate) fn run(
    cell: Arc<TopologyCell>,
    server: Arc<Server>,
    mailbox: Arc<Mailbox>,
) -> impl Future<Output = ()> + Send + 'static {
    cell.monitors.begin();
    let guard = Guard {
        cell,
        server,
        mailbox,
    };
    async move {
        let (cell, server) = (&*guard.cell, &*guard.server);
        let mut machine = RttMachine::new(Arc::clone(&cell.config));
        let mut link = Link::default();
        let mut alarm = Alarm::default();
        let mut effects = machine.start(cell.now());
        while !execute(effects, cell, server, &mut link) {
            let deadline = machine.deadline();
            let clock = &*cell.runtime.io.clock;
            let answer = poll_fn(|cx| {
                if guard.mailbox.poll(cx).is_ready() {
                    return Poll::Ready(Wake::Stop);
                }
                if let Poll::Ready(answer) = link.poll(cx) {
                    return Poll::Ready(Wake::Answer(answer));
                }
                alarm.poll(clock, deadline, cx).map(|()| Wake::Deadline)
            })
            .await;
            let now = cell.now();
            effects = match answer {
                Wake::Stop => machine.handle(now, RttInput::Stop),
                Wake::Deadline => machine.handle(now, RttInput::DeadlineReached),
                Wake::Answer(Answer::Connected) => machine.handle(now, RttInput::Connected),
                Wake::Answer(Answer::Failed(_)) => machine.handle(now, RttInput::Failed),
                Wake::Answer(Answer::Reply { message, .. }) => machine.handle(
                    now,
                    RttInput::Reply {
                        bytes: message.body(),
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
fn execute(effects: RttEffects, cell: &TopologyCell, server: &Server, link: &mut Link) -> bool {
    let mut exit = false;
    for effect in effects {
        match effect {
            RttEffect::Connect { deadline } => {
                link.connect(
                    &cell.runtime.io,
                    &cell.options,
                    &server.core.address,
                    deadline,
                );
            }
            RttEffect::Send { request, deadline } => {
                link.send(cell.introduction.renew(request), deadline);
            }
            RttEffect::Disconnect => link.disconnect(),
            RttEffect::Sample(sample) => server.rtt().add(sample),
            RttEffect::Exit => exit = true,
        }
    }
    exit
}

/// A guard that counts the end of the task, however it ends.
struct Guard {
    cell: Arc<TopologyCell>,
    server: Arc<Server>,
    mailbox: Arc<Mailbox>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.server.rtt_task_ended(&self.mailbox);
        self.cell.monitor_ended();
    }
}
