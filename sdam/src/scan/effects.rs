//! Execution of the effects of the topology and monitor machines.

use std::sync::Arc;

use sdam_core::{
    app_error::{AppError, ErrorOutcome},
    event::{EventKind, EventName},
    ids::ServerId,
    machine::{Effect, Effects, Input, RecordedInput},
    monitor::{MonitorEffect, MonitorInput},
    pool::{NoPools, PoolClear},
    time::Instant,
};

use super::{Member, ScanTopology};
use crate::failures::Failures;

impl ScanTopology {
    /// Applies an input to the topology machine. `checked` is the server whose check caused it.
    pub(super) fn apply(&mut self, input: Input<'_>, checked: Option<ServerId>) {
        self.apply_as(input, checked, RecordedInput::of);
    }

    pub(super) fn apply_as(
        &mut self,
        input: Input<'_>,
        checked: Option<ServerId>,
        record: impl FnOnce(&Input<'_>) -> Option<RecordedInput>,
    ) {
        let now = self.now();
        if self.events.wants(EventName::Input)
            && let Some(recorded) = record(&input)
        {
            self.events.push(now, EventKind::Input(Arc::new(recorded)));
        }
        let failed = Failures::failed_check(&input);
        let effects = self.machine.handle(now, input);
        self.run(effects, checked);
        if let Some(member) = failed.and_then(|server| self.members.get_mut(&server)) {
            member.failures.repeat(now);
        }
    }

    pub(super) fn apply_error(&mut self, server: ServerId, error: &AppError<'_>) -> ErrorOutcome {
        let now = self.now();
        self.events.push_with(now, EventName::Input, || {
            EventKind::Input(Arc::new(RecordedInput::of_error(server, error)))
        });
        let (outcome, effects) = self.machine.handle_error(now, server, error);
        self.run(effects, None);
        outcome
    }

    /// Passes an input to a server's monitor and runs its effects.
    pub(super) fn tell_monitor(&mut self, server: ServerId, input: MonitorInput<'_>) {
        let now = self.now();
        let status = self.machine.status(server);
        let member = self.members.get_mut(&server);
        let Some(monitor) = member.and_then(|member| member.monitor.as_mut()) else {
            return;
        };
        for effect in monitor.handle(now, status, input) {
            self.run_monitor_effect(server, effect);
        }
    }

    fn run_monitor_effect(&mut self, server: ServerId, effect: MonitorEffect) {
        let now = self.now();
        let Some(member) = self.members.get_mut(&server) else {
            // An earlier effect has removed the server and stopped its monitor.
            return;
        };
        match effect {
            MonitorEffect::Connect { deadline } => {
                let Some(description) = self.machine.description().server_by_id(server) else {
                    return;
                };
                member
                    .link
                    .connect(&self.io, &self.options, &description.address, deadline);
            }
            MonitorEffect::Send { request, deadline } => {
                member.link.send(self.introduction.renew(request), deadline);
            }
            MonitorEffect::ReadNext { deadline } => member.link.read_next(deadline),
            MonitorEffect::Disconnect => member.disconnect(),
            MonitorEffect::RttSample(sample) => member.rtt.add(sample),
            MonitorEffect::Report { outcome } => {
                let rtt = member.rtt.rtt();
                let input = Input::Checked {
                    server,
                    outcome,
                    rtt,
                };
                self.apply(input, Some(server));
            }
            MonitorEffect::Emit(event) => self.events.push(now, event),
            // Monitors do not stream here, and a stopped monitor is already removed.
            MonitorEffect::StartRtt | MonitorEffect::StopRtt | MonitorEffect::Exit => {}
        }
    }

    /// Runs effects in order.
    fn run(&mut self, effects: Effects, checked: Option<ServerId>) {
        let now = self.now();
        for effect in effects {
            match effect {
                Effect::OpenServer {
                    server,
                    address,
                    monitored,
                } => {
                    let pool = self.panic.catch(|| self.pools.create(server, &address));
                    // If the pool factory panics, the server is still monitored.
                    let pool = pool.unwrap_or_else(|| Arc::new(NoPools));
                    let monitor =
                        monitored.then(|| Member::monitor(&self.config, server, &address));
                    self.members.insert(server, Member::new(pool, monitor));
                }
                Effect::PoolReady { server } => self.pool_ready(server),
                Effect::Emit(event) => {
                    self.remember(now, &event);
                    self.events.push(now, event);
                }
                Effect::PoolClear { server, clear } => {
                    self.pool_clear(server, clear, checked == Some(server));
                }
                Effect::CloseServer { server } => self.close_server(server),
                Effect::ResetRtt { server } => {
                    if let Some(member) = self.members.get_mut(&server) {
                        member.rtt.reset();
                    }
                }
                Effect::CancelCheck { server, generation } => {
                    self.tell_monitor(server, MonitorInput::Cancel { generation });
                }
                // Readers and monitors read the machine directly, and the scan decides which
                // server is checked when.
                Effect::Publish(_) | Effect::ServerKnown { .. } | Effect::RequestCheck { .. } => {}
            }
        }
    }

    /// Records a server's error from its new description.
    fn remember(&mut self, now: Instant, event: &EventKind) {
        if let EventKind::ServerDescriptionChanged { new, .. } = event
            && let Some(member) = self.members.get_mut(&new.id)
        {
            member.failures.observe(new, now);
        }
    }

    fn pool_ready(&mut self, server: ServerId) {
        let Some(member) = self.members.get(&server) else {
            return;
        };
        self.panic.catch(|| member.pool.ready());
        let now = self.now();
        if let Some(description) = self.machine.description().server_by_id(server) {
            self.events.push_with(now, EventName::PoolReady, || {
                let address = description.address.clone();
                EventKind::PoolReady { server, address }
            });
        }
    }

    /// Clears the pool, and closes the checks' connection like a pooled one. A failed check has
    /// already decided whether to keep its connection.
    fn pool_clear(&mut self, server: ServerId, clear: PoolClear, by_check: bool) {
        let now = self.now();
        let Some(member) = self.members.get_mut(&server) else {
            return;
        };
        self.panic.catch(|| member.pool.clear(&clear));
        let generation = clear.generation;
        match clear.service_id {
            Some(service) if member.service == Some(service) => member.disconnect(),
            Some(_) => {}
            None if by_check => {}
            None => self.tell_monitor(server, MonitorInput::Cancel { generation }),
        }
        if let Some(description) = self.machine.description().server_by_id(server) {
            self.events.push_with(now, EventName::PoolCleared, || {
                let address = description.address.clone();
                EventKind::PoolCleared {
                    server,
                    address,
                    clear,
                }
            });
        }
    }

    /// Closes the pool and the connection; a check in progress ends its heartbeat.
    fn close_server(&mut self, server: ServerId) {
        if let Some(member) = self.members.get(&server) {
            self.panic.catch(|| member.pool.close());
            self.tell_monitor(server, MonitorInput::Stop);
            self.members.remove(&server);
        }
    }
}
