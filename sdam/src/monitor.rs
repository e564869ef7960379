//! Monitoring of one server: runs the effects of the monitor machine, and its task.

pub(crate) mod connection;
mod rtt;
mod task;
pub(crate) mod timer;

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};

use sdam_core::{
    hello::HelloRequest,
    machine::Input,
    monitor::{MonitorConfig, MonitorEffect, MonitorEffects},
    time::Instant,
};
use sdam_events::queue::EventQueue;
use sdam_transport::{clock::Clock, runtime::Io};

pub(crate) use self::task::Monitor;
use self::{
    connection::{Answer, MonitorConnection},
    timer::DeadlineTimer,
};
use crate::engine::server::Server;

/// The topology that a monitor belongs to.
pub(crate) trait MonitorHost: Send + Sync + Sized + 'static {
    fn io(&self) -> &Io;

    fn config(&self) -> &Arc<MonitorConfig>;

    /// Returns the maximum size of a reply, in bytes.
    fn max_hello_size(&self) -> usize;

    /// Replaces the client metadata of a connection's first request with the current one.
    fn renew(&self, request: HelloRequest) -> HelloRequest;

    fn events(&self) -> &EventQueue;

    /// Returns whether idle monitors should check their server now.
    fn is_check_wanted(&self) -> bool;

    /// Applies the result of a check. On return all effects have run.
    fn apply(self: &Arc<Self>, input: Input<'_>);

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static);

    /// Counts a task that is about to be spawned.
    fn task_begins(&self);

    fn task_ended(&self);

    /// Wakes the readers of the snapshot after a monitor was lost.
    fn wake_readers(&self);

    fn now(&self) -> Instant {
        self.io().clock.now()
    }

    /// Starts to open a connection to `server`.
    fn connect(
        &self,
        server: &Server,
        connection: &mut MonitorConnection,
        deadline: Option<Instant>,
    ) {
        let address = &server.core.address;
        connection.connect(self.io(), self.max_hello_size(), address, deadline);
    }
}

/// Runs effects of a server's monitor machine in order. Returns whether the last one was
/// [`MonitorEffect::Exit`].
pub(crate) fn execute<H: MonitorHost>(
    effects: MonitorEffects,
    host: &Arc<H>,
    server: &Arc<Server>,
    connection: &mut MonitorConnection,
) -> bool {
    let mut exit = false;
    for effect in effects {
        match effect {
            MonitorEffect::Connect { deadline } => host.connect(server, connection, deadline),
            MonitorEffect::Send { request, deadline } => {
                connection.send(host.renew(request), deadline);
            }
            MonitorEffect::ReadNext { deadline } => connection.read_next(deadline),
            MonitorEffect::Disconnect => connection.disconnect(),
            MonitorEffect::RttSample(sample) => server.rtt().add(sample),
            MonitorEffect::Report { outcome } => {
                let rtt = server.rtt().rtt();
                host.apply(Input::Checked {
                    server: server.id(),
                    outcome,
                    rtt,
                });
            }
            MonitorEffect::StartRtt => {
                if let Some(control) = server.begin_rtt_task() {
                    let task = rtt::run(Arc::clone(host), Arc::clone(server), control);
                    host.spawn("sdam-rtt", task);
                }
            }
            MonitorEffect::StopRtt => server.stop_rtt_task(),
            MonitorEffect::Emit(event) => host.events().push(host.now(), event),
            MonitorEffect::Exit => exit = true,
        }
    }
    exit
}

/// Waits for the connection's answer or the deadline (`None`). An answer that is there counts, even
/// if the deadline has passed.
pub(crate) async fn answer(
    clock: &dyn Clock,
    connection: &mut MonitorConnection,
    deadline: Option<Instant>,
    timer: &mut DeadlineTimer,
) -> Option<Answer> {
    poll_fn(|cx| {
        if let Poll::Ready(answer) = connection.poll(cx) {
            return Poll::Ready(Some(answer));
        }
        timer.poll(clock, deadline, cx).map(|()| None)
    })
    .await
}
