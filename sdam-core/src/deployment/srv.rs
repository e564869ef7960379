//! The polling of the SRV record.

use alloc::sync::Arc;
use core::time::Duration;

use super::Deployment;
use crate::{
    error::Error,
    monitor::MonitorConfig,
    options::Options,
    output::{Output, Outputs},
    srv::{SrvEffect, SrvMachine, SrvRecords},
    time::Instant,
};

/// The look-ups of the SRV record of a deployment, one at a time.
#[derive(Clone, Debug)]
pub(super) struct SrvPolling {
    machine: SrvMachine,
    timeout: Option<Duration>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotOpen,
    Waiting,
    LookingUp,
}

impl SrvPolling {
    /// Creates the polling of the record of `options`, if there is one to poll.
    pub(super) fn new(options: &Options, config: &MonitorConfig) -> Option<Self> {
        let srv = options.srv.clone()?;
        let polls = options.topology_type().polls_srv();
        polls.then(|| Self {
            machine: SrvMachine::new(srv, config.heartbeat_frequency, Instant::EPOCH),
            timeout: options.connect_timeout,
            state: State::NotOpen,
        })
    }

    /// Begins the first interval, unless it has begun.
    pub(super) fn open(&mut self, now: Instant) {
        if self.state == State::NotOpen {
            self.machine.restart(now);
            self.state = State::Waiting;
        }
    }
}

impl Deployment {
    /// Returns when the next look-up is due; `None` while one is outstanding, and for ever once the
    /// topology has a type that is not polled.
    pub(super) fn next_look_up(&self) -> Option<Instant> {
        let srv = self.srv.as_ref()?;
        let polls = !self.is_closed() && self.description().topology_type().polls_srv();
        (polls && srv.state == State::Waiting).then(|| srv.machine.next_rescan())
    }

    pub(super) fn look_up(&mut self, now: Instant, out: &mut Outputs) {
        let is_due = self.next_look_up().is_some_and(|next| next <= now);
        if let Some(srv) = self.srv.as_mut().filter(|_| is_due) {
            srv.state = State::LookingUp;
            out.push(Output::LookUp {
                name: Arc::clone(srv.machine.query_name()),
                deadline: srv.timeout.map(|timeout| now + timeout),
            });
        }
    }

    pub(super) fn looked_up(
        &mut self,
        now: Instant,
        outcome: Result<SrvRecords, Error>,
        out: &mut Outputs,
    ) {
        let closed = self.is_closed();
        let outstanding = |srv: &&mut SrvPolling| srv.state == State::LookingUp && !closed;
        let Some(srv) = self.srv.as_mut().filter(outstanding) else {
            return;
        };
        srv.state = State::Waiting;
        for effect in srv.machine.rescanned(now, outcome) {
            match effect {
                SrvEffect::Emit(event) => out.emit(event),
                SrvEffect::Hosts(hosts) => self.hosts(now, &hosts, out),
            }
        }
    }
}
