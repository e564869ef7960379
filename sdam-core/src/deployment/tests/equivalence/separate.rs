//! A topology machine, and for each server a monitor and a machine of round-trip times.

use std::{collections::BTreeMap, sync::Arc};

use super::{super::world::*, Asked, Log};
use crate::{
    error::ErrorOutcome,
    event::EventKind,
    machine::{Effect, Effects, RecordedInput, TopologyMachine},
    monitor::{MonitorEffect, MonitorInput, MonitorMachine},
    rtt::{
        RttWindow,
        machine::{RttEffect, RttInput, RttMachine},
    },
};

pub(super) struct Separate {
    topology: TopologyMachine,
    servers: BTreeMap<ServerId, Member>,
    config: Arc<MonitorConfig>,
    pub(super) log: Log,
}

struct Member {
    monitor: MonitorMachine,
    rtt: Option<RttMachine>,
    window: RttWindow,
    asked: [Option<Asked>; 2],
    /// True if the connection of the measurements is open.
    measures: bool,
    requested: bool,
}

impl Separate {
    pub(super) fn new(options: &Options, config: Arc<MonitorConfig>) -> Self {
        Self {
            topology: TopologyMachine::new(options, ObjectId::default()),
            servers: BTreeMap::new(),
            config,
            log: Log::default(),
        }
    }

    pub(super) fn description(&self) -> &Arc<TopologyDescription> {
        self.topology.description()
    }

    pub(super) fn asked(&self, server: ServerId, role: Role) -> Option<Asked> {
        self.servers.get(&server)?.asked[role as usize]
    }

    pub(super) fn rtt(&self, server: ServerId) -> Option<Rtt> {
        self.servers.get(&server)?.window.rtt()
    }

    pub(super) fn deadline(&self, server: ServerId, wanted: bool) -> Option<Instant> {
        let member = self.servers.get(&server)?;
        let earliest = member.monitor.earliest_check().filter(|_| wanted);
        let monitor = earliest.or_else(|| member.monitor.deadline());
        let rtt = member.rtt.as_ref().and_then(RttMachine::deadline);
        [monitor, rtt].into_iter().flatten().min()
    }

    pub(super) fn apply(&mut self, now: Instant, input: machine::Input<'_>) {
        if let Some(recorded) = RecordedInput::of(&input) {
            self.log.push(EventKind::Input(Arc::new(recorded)));
        }
        let effects = self.topology.handle(now, input);
        self.run(now, effects);
    }

    pub(super) fn hello(
        &mut self,
        now: Instant,
        (server, generation, rtt): (ServerId, Generation, Option<Rtt>),
        hello: Hello,
        bytes: &[u8],
    ) {
        self.log
            .push(EventKind::Input(Arc::new(RecordedInput::Handshake {
                server,
                generation,
                reply: bytes.into(),
                rtt,
            })));
        let effects = self.topology.handle(
            now,
            machine::Input::Handshake {
                server,
                generation,
                hello,
                rtt,
            },
        );
        self.run(now, effects);
    }

    pub(super) fn error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &ErrorReport,
    ) -> ErrorOutcome {
        let recorded = RecordedInput::of_error(server, error);
        self.log.push(EventKind::Input(Arc::new(recorded)));
        let (outcome, effects) = self.topology.handle_error(now, server, error);
        self.run(now, effects);
        outcome
    }

    pub(super) fn request(&mut self, server: ServerId) {
        if let Some(member) = self.servers.get_mut(&server) {
            member.requested = true;
        }
    }

    pub(super) fn desert(&mut self, now: Instant, server: ServerId) {
        if self.servers.contains_key(&server) {
            self.stop(now, server);
            self.apply(now, machine::Input::MonitorDied { server });
        }
    }

    pub(super) fn connected(&mut self, now: Instant, (server, role): (ServerId, Role)) {
        self.answered(server, role);
        match role {
            Role::Check => self.tell(now, server, MonitorInput::Connected),
            Role::Ping => {
                if let Some(member) = self.servers.get_mut(&server) {
                    member.measures = true;
                }
                self.measure(now, server, RttInput::Connected);
            }
        }
        self.proceed(now, server);
    }

    pub(super) fn replied(
        &mut self,
        now: Instant,
        (server, role): (ServerId, Role),
        (sent, at): (Instant, Instant),
        bytes: &[u8],
        more_to_come: bool,
    ) {
        self.answered(server, role);
        let hello = Hello::parse(bytes);
        match role {
            Role::Check => self.tell(
                now,
                server,
                MonitorInput::Reply {
                    sent,
                    at,
                    hello,
                    bytes: bytes.into(),
                    more_to_come,
                },
            ),
            Role::Ping => self.measure(now, server, RttInput::Reply { sent, at, hello }),
        }
        self.proceed(now, server);
    }

    pub(super) fn failed(
        &mut self,
        now: Instant,
        (server, role): (ServerId, Role),
        at: Instant,
        error: Error,
    ) {
        self.answered(server, role);
        match role {
            Role::Check => self.tell(now, server, MonitorInput::Failed { at, error }),
            Role::Ping => self.measure(now, server, RttInput::Failed),
        }
        self.proceed(now, server);
    }

    /// Acts at the deadline of a server.
    pub(super) fn due(&mut self, now: Instant, server: ServerId, wanted: bool) {
        let reached = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if let Some(member) = self.servers.get(&server) {
            if wanted && reached(member.monitor.earliest_check()) {
                self.tell(now, server, MonitorInput::CheckRequested);
            } else if reached(member.monitor.deadline()) {
                self.tell(now, server, MonitorInput::DeadlineReached);
            }
        }
        let rtt = self.servers.get(&server).and_then(|own| own.rtt.as_ref());
        if reached(rtt.and_then(RttMachine::deadline)) {
            self.measure(now, server, RttInput::DeadlineReached);
        }
        self.proceed(now, server);
    }

    /// Passes requests on, and begins what may begin, without a hand-over in between.
    fn proceed(&mut self, now: Instant, server: ServerId) {
        let reached = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        self.pass_request(now, server);
        if let Some(member) = self.servers.get(&server)
            && member.asked[Role::Check as usize].is_none()
            && reached(member.monitor.deadline())
        {
            self.tell(now, server, MonitorInput::DeadlineReached);
        }
        if let Some(member) = self.servers.get(&server)
            && member.asked[Role::Ping as usize].is_none()
            && reached(member.rtt.as_ref().and_then(RttMachine::deadline))
        {
            self.measure(now, server, RttInput::DeadlineReached);
        }
    }

    /// Passes a request on, which a running check ignores.
    pub(super) fn pass_request(&mut self, now: Instant, server: ServerId) {
        if let Some(member) = self.servers.get_mut(&server)
            && core::mem::take(&mut member.requested)
        {
            self.tell(now, server, MonitorInput::CheckRequested);
        }
    }

    fn answered(&mut self, server: ServerId, role: Role) {
        if let Some(member) = self.servers.get_mut(&server) {
            member.asked[role as usize] = None;
        }
    }

    fn ask(&mut self, server: ServerId, role: Role, asked: Option<Asked>) {
        if let Some(member) = self.servers.get_mut(&server) {
            member.asked[role as usize] = asked;
        }
    }

    fn tell(&mut self, now: Instant, server: ServerId, input: MonitorInput) {
        let status = self.topology.status(server);
        let Some(member) = self.servers.get_mut(&server) else {
            return;
        };
        let effects = member.monitor.handle(now, status, input);
        let on = (server, Role::Check);
        for effect in effects {
            match effect {
                MonitorEffect::Connect { deadline } => {
                    self.log.connect(on, deadline);
                    self.ask(server, Role::Check, Some(Asked::Connection));
                }
                MonitorEffect::Send { request, deadline } => {
                    self.log.send(on, &request, deadline);
                    self.ask(server, Role::Check, Some(Asked::Reply { sent: now }));
                }
                MonitorEffect::ReadNext { deadline } => {
                    self.log.read(on, deadline);
                    self.ask(server, Role::Check, Some(Asked::Reply { sent: now }));
                }
                MonitorEffect::Disconnect => {
                    self.log.disconnect(on);
                    self.ask(server, Role::Check, None);
                }
                MonitorEffect::RttSample(sample) => {
                    if let Some(member) = self.servers.get_mut(&server) {
                        member.window.add(sample);
                    }
                }
                MonitorEffect::Report { outcome } => {
                    let rtt = self.rtt(server);
                    let input = machine::Input::Checked {
                        server,
                        outcome,
                        rtt,
                    };
                    self.apply(now, input);
                }
                MonitorEffect::StartRtt => {
                    let config = Arc::clone(&self.config);
                    if let Some(member) = self.servers.get_mut(&server) {
                        member.rtt = Some(RttMachine::new(config));
                    }
                }
                MonitorEffect::StopRtt => self.stop_rtt(now, server),
                MonitorEffect::Emit(event) => self.log.push(event),
                MonitorEffect::Exit => {}
            }
        }
    }

    fn measure(&mut self, now: Instant, server: ServerId, input: RttInput) {
        let Some(member) = self.servers.get_mut(&server) else {
            return;
        };
        let Some(rtt) = &mut member.rtt else {
            return;
        };
        let on = (server, Role::Ping);
        // The old machine asks for a disconnect even if there is nothing to close.
        let is_open = member.measures || member.asked[Role::Ping as usize].is_some();
        let is_closed = matches!(input, RttInput::Stop) && !is_open;
        for effect in rtt.handle(now, input) {
            match effect {
                RttEffect::Connect { deadline } => {
                    self.log.connect(on, deadline);
                    member.asked[Role::Ping as usize] = Some(Asked::Connection);
                }
                RttEffect::Send { request, deadline } => {
                    self.log.send(on, &request, deadline);
                    member.asked[Role::Ping as usize] = Some(Asked::Reply { sent: now });
                }
                RttEffect::Disconnect => {
                    member.asked[Role::Ping as usize] = None;
                    member.measures = false;
                    if !is_closed {
                        self.log.disconnect(on);
                    }
                }
                RttEffect::Sample(sample) => member.window.add(sample),
                RttEffect::Exit => {}
            }
        }
    }

    fn stop(&mut self, now: Instant, server: ServerId) {
        self.tell(now, server, MonitorInput::Stop);
        self.stop_rtt(now, server);
    }

    fn stop_rtt(&mut self, now: Instant, server: ServerId) {
        self.measure(now, server, RttInput::Stop);
        if let Some(member) = self.servers.get_mut(&server) {
            member.rtt = None;
        }
    }

    fn run(&mut self, now: Instant, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::OpenServer {
                    server, address, ..
                } => {
                    let config = Arc::clone(&self.config);
                    let member = Member {
                        monitor: MonitorMachine::new(config, server, address),
                        rtt: None,
                        window: RttWindow::new(),
                        asked: [None; 2],
                        measures: false,
                        requested: false,
                    };
                    self.servers.insert(server, member);
                    self.log.push(("open", server));
                }
                Effect::CloseServer { server } => {
                    self.stop(now, server);
                    self.servers.remove(&server);
                    self.log.push(("close", server));
                }
                Effect::PoolReady { server } => self.log.push(("ready", server)),
                Effect::PoolClear { server, clear } => self.log.push(("clear", server, clear)),
                Effect::Publish(description) => self.log.push(description),
                Effect::Emit(event) => self.log.push(event),
                Effect::ServerKnown { .. } => {}
                Effect::ResetRtt { server } => {
                    if let Some(member) = self.servers.get_mut(&server) {
                        member.window.reset();
                    }
                }
                Effect::CancelCheck { server, generation } => {
                    self.tell(now, server, MonitorInput::Cancel { generation });
                }
                Effect::RequestCheck { server } => self.request(server),
            }
        }
    }
}
