//! The deployment against the machines that it replaces, wired by a hand-over that takes no time.

mod separate;

use std::{collections::BTreeMap, format, string::String, sync::Arc, vec::Vec};

use bson::{Document, doc, oid};
use proptest::{collection::vec, prelude::*, sample::Index};

use self::separate::Separate;
use super::world::*;
use crate::{
    error::{Error, ErrorOutcome},
    hello::HelloRequest,
    reply,
    rng::Rng,
};

/// The requests on one connection, and everything else in order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Log {
    pub(super) order: Vec<String>,
    pub(super) requests: BTreeMap<(ServerId, Role), Vec<String>>,
}

impl Log {
    pub(super) fn push(&mut self, what: impl core::fmt::Debug) {
        self.order.push(format!("{what:?}"));
    }

    pub(super) fn connect(&mut self, on: (ServerId, Role), deadline: Option<Instant>) {
        self.request(on, format!("connect until {deadline:?}"));
    }

    pub(super) fn send(
        &mut self,
        on: (ServerId, Role),
        hello: &HelloRequest,
        deadline: Option<Instant>,
    ) {
        self.request(on, format!("send {hello:?} until {deadline:?}"));
    }

    pub(super) fn read(&mut self, on: (ServerId, Role), deadline: Option<Instant>) {
        self.request(on, format!("read until {deadline:?}"));
    }

    pub(super) fn disconnect(&mut self, on: (ServerId, Role)) {
        self.request(on, "disconnect".into());
    }

    fn request(&mut self, on: (ServerId, Role), request: String) {
        self.requests.entry(on).or_default().push(request);
    }

    /// Adds the outputs of a deployment.
    fn add(&mut self, outputs: Outputs) {
        for output in outputs {
            let on = |conn: ConnId| (conn.server, conn.role);
            match output {
                Output::Connect { conn, deadline } => self.connect(on(conn), deadline),
                Output::Send {
                    conn,
                    request,
                    deadline,
                } => self.send(on(conn), &request, deadline),
                Output::Read { conn, deadline } => self.read(on(conn), deadline),
                Output::Disconnect { conn } => self.disconnect(on(conn)),
                Output::Emit(event) => self.push(event),
                Output::Publish(description) => self.push(description),
                Output::PoolReady { server } => self.push(("ready", server)),
                Output::PoolClear { server, clear } => self.push(("clear", server, clear)),
                Output::OpenServer { server, .. } => self.push(("open", server)),
                Output::CloseServer { server } => self.push(("close", server)),
                Output::Wake { .. } => {}
                Output::LookUp { .. } => panic!("no SRV record"),
            }
        }
    }
}

/// An outstanding request on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Connection,
    Reply { sent: Instant },
}

#[derive(Clone, Debug)]
enum Step {
    Wait {
        millis: u64,
        /// True if the timers of servers fire whose checks are running.
        expire: bool,
    },
    Wanted(bool),
    Answer {
        server: Index,
        ping: bool,
        broken: Option<ErrorKind>,
        reply: usize,
        more: bool,
        lag: u64,
    },
    Error {
        server: Index,
        stage: Stage,
        reply: Option<usize>,
        old: bool,
    },
    Request(Index),
    Handshake {
        server: Index,
        reply: usize,
        old: bool,
    },
    Played {
        server: Index,
        reply: Option<usize>,
    },
    Hosts(u8),
    Desert(Index),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let reply = || 0..replies().len();
    let stage = prop_oneof![
        Just(Stage::Connect),
        Just(Stage::Hello),
        Just(Stage::Auth),
        Just(Stage::Operation),
    ];
    let broken = prop_oneof![
        8 => Just(None),
        1 => Just(Some(ErrorKind::Network)),
        1 => Just(Some(ErrorKind::Timeout)),
        1 => Just(Some(ErrorKind::Protocol)),
    ];
    let waits = prop_oneof![
        Just(0),
        1..600_u64,
        Just(500),
        Just(10_000),
        9_000..25_000_u64
    ];
    prop_oneof![
        60 => (index(), any::<bool>(), broken, reply(), any::<bool>(), 0..3_u64).prop_map(
            |(server, ping, broken, reply, more, lag)| Step::Answer {
                server, ping, broken, reply, more, lag
            }
        ),
        20 => (waits, prop::bool::weighted(0.9))
            .prop_map(|(millis, expire)| Step::Wait { millis, expire }),
        4 => any::<bool>().prop_map(Step::Wanted),
        12 => (index(), stage, prop::option::of(reply()), prop::bool::weighted(0.2)).prop_map(
            |(server, stage, reply, old)| Step::Error { server, stage, reply, old }
        ),
        4 => index().prop_map(Step::Request),
        5 => (index(), reply(), prop::bool::weighted(0.2))
            .prop_map(|(server, reply, old)| Step::Handshake { server, reply, old }),
        3 => (index(), prop::option::of(reply()))
            .prop_map(|(server, reply)| Step::Played { server, reply }),
        3 => (1..8_u8).prop_map(Step::Hosts),
        1 => index().prop_map(Step::Desert),
        1 => prop::bool::weighted(0.1).prop_map(|close| if close {
            Step::Close
        } else {
            Step::Wanted(true)
        }),
    ]
}

/// Returns replies of members of several sets, of other servers, and errors.
fn replies() -> Vec<Document> {
    let mut replies = Vec::new();
    for primary in [true, false] {
        for counter in [0, 1, 2] {
            for hosts in [&["a", "b"][..], &["a", "b", "c"], &["b"]] {
                let mut reply = member(primary, counter);
                reply.insert("hosts", hosts);
                reply.insert("maxWireVersion", if counter == 2 { 7 } else { 17 });
                if counter == 0 {
                    reply.remove("topologyVersion");
                }
                if primary {
                    let election = oid::ObjectId::from_bytes([1 + counter as u8; 12]);
                    reply.insert("electionId", election);
                    reply.insert("setVersion", 1);
                }
                replies.push(reply);
            }
        }
    }
    let mut other = member(true, 1);
    other.insert("setName", "other");
    let mut renamed = member(false, 1);
    renamed.insert("me", "b");
    let mongos = doc! { "ok": 1, "msg": "isdbgrid", "maxWireVersion": 17 };
    let mut pushing = mongos.clone();
    pushing.insert("topologyVersion", member(true, 1).remove("topologyVersion"));
    replies.extend([other, renamed, mongos, pushing, standalone()]);
    let refusal = doc! { "ok": 0, "code": 11_600, "errmsg": "interrupted at shutdown" };
    let stepped = doc! { "ok": 0, "code": 10_107, "errmsg": "not primary" };
    replies.extend([refusal, stepped, doc! { "ok": 0, "errmsg": "no" }, doc! {}]);
    replies
}

/// The two sides.
struct Pair {
    deployment: Deployment,
    separate: Separate,
    log: Log,
    now: Instant,
    wanted: bool,
    replies: Vec<Vec<u8>>,
}

impl Pair {
    fn new(options: &Options) -> Self {
        let config = MonitorConfig::new(options, Arc::new(Handshake::new([])), false);
        let config = Arc::new(config);
        let id = ObjectId::default();
        let mut deployment = Deployment::new(options, Arc::clone(&config), id, Rng::new(1));
        // The measurements that are replaced ride on nothing.
        deployment.slack = Duration::ZERO;
        Self {
            deployment: deployment.with_recorded_inputs(),
            separate: Separate::new(options, config),
            log: Log::default(),
            now: Instant::from_millis(1_000),
            wanted: false,
            replies: replies()
                .iter()
                .map(|reply| reply.to_vec().unwrap())
                .collect(),
        }
    }

    fn pass(&mut self, input: Input<'_>) {
        let outputs = self.deployment.handle(self.now, input);
        self.log.add(outputs);
    }

    fn apply(&mut self, input: machine::Input<'_>) {
        self.separate.apply(self.now, input);
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Wait { millis, expire } => {
                self.now = self.now + Duration::from_millis(*millis);
                self.settle(*expire);
            }
            Step::Wanted(wanted) => self.wanted = *wanted,
            Step::Answer {
                server,
                ping,
                broken,
                reply,
                more,
                lag,
            } => {
                let Some(server) = self.pick(*server) else {
                    return;
                };
                let role = if *ping { Role::Ping } else { Role::Check };
                let lag = Duration::from_millis(*lag);
                self.answer((server, role), *broken, *reply, *more, lag);
            }
            Step::Error {
                server,
                stage,
                reply,
                old,
            } => {
                if let Some(server) = self.pick(*server) {
                    self.error(server, *stage, *reply, *old);
                }
            }
            Step::Request(server) => {
                if let Some(server) = self.pick(*server) {
                    self.pass(Input::CheckRequested { server });
                    self.separate.request(server);
                }
            }
            Step::Handshake { server, reply, old } => {
                if let Some(server) = self.pick(*server) {
                    self.handshake(server, *reply, *old);
                }
            }
            Step::Played { server, reply } => {
                if let Some(server) = self.pick(*server) {
                    self.played(server, *reply);
                }
            }
            Step::Hosts(bits) => {
                let names = ["a", "b", "c"].into_iter().enumerate();
                let hosts: Vec<_> = names
                    .filter(|(index, _)| bits & 1 << index != 0)
                    .map(|(_, name)| ServerAddress::parse(name).unwrap())
                    .collect();
                self.pass(Input::Hosts(&hosts));
                self.apply(machine::Input::Hosts(&hosts));
            }
            Step::Desert(server) => {
                if let Some(server) = self.pick(*server) {
                    self.pass(Input::Deserted { server });
                    self.separate.desert(self.now, server);
                }
            }
            Step::Close => {
                self.pass(Input::Close);
                self.apply(machine::Input::Close);
            }
        }
        self.settle(false);
    }

    fn pick(&self, index: Index) -> Option<ServerId> {
        let servers = &self.deployment.servers;
        (!servers.is_empty()).then(|| servers[index.index(servers.len())].id)
    }

    /// Fires the timers that are due. Those of running checks only if they shall `expire`.
    fn settle(&mut self, expire: bool) {
        let (now, wanted) = (self.now, self.wanted);
        let servers: Vec<_> = self.deployment.servers.iter().map(|own| own.id).collect();
        for server in servers {
            self.separate.pass_request(now, server);
            for _ in 0..3 {
                let timer = Timer::Server(server);
                let deadline = self.deployment.deadline_of(timer, wanted);
                let own = self.deployment.server(server);
                let may = |own: &Server| expire || own.check.is_idle();
                if deadline.is_none_or(|at| at > now) || !own.is_some_and(may) {
                    break;
                }
                self.pass(Input::Due { timer, wanted });
                self.separate.due(now, server, wanted);
            }
        }
    }

    fn answer(
        &mut self,
        (server, role): (ServerId, Role),
        broken: Option<ErrorKind>,
        reply: usize,
        more_to_come: bool,
        lag: Duration,
    ) {
        let now = self.now;
        let own = self.deployment.server(server).unwrap();
        let conn = match role {
            Role::Check => own.check.conn(),
            Role::Ping => own.ping.conn(),
        };
        let Some(asked) = self.separate.asked(server, role) else {
            let outputs = self.deployment.handle(now, Input::Connected { conn });
            assert!(outputs.is_empty(), "{outputs:?}");
            return;
        };
        let at = now - lag;
        if let Some(kind) = broken {
            let error = Error::new(kind, Stage::Hello, "scripted");
            self.pass(Input::Failed {
                conn,
                at,
                error: error.clone(),
            });
            self.separate.failed(now, (server, role), at, error);
            return;
        }
        let Asked::Reply { sent } = asked else {
            self.pass(Input::Connected { conn });
            self.separate.connected(now, (server, role));
            return;
        };
        let bytes = &self.replies[reply].clone();
        self.pass(Input::Reply {
            conn,
            sent,
            at,
            hello: Hello::parse(bytes),
            bytes: bytes.as_slice().into(),
            more_to_come,
        });
        self.separate
            .replied(now, (server, role), (sent, at), bytes, more_to_come);
    }

    fn error(&mut self, server: ServerId, stage: Stage, reply: Option<usize>, old: bool) {
        let generation = self.of_pool(server, old);
        let error = match reply {
            Some(reply) => reply::error(&self.replies[reply], stage),
            None => Some(Error::network(stage, "reset")),
        };
        // A reply without an error is not reported.
        let Some(error) = error else { return };
        let error = ErrorReport::new(generation, error).with_max_wire_version(9);
        let (outcome, outputs) = self.deployment.handle_error(self.now, server, &error);
        self.log.add(outputs);
        let other: ErrorOutcome = self.separate.error(self.now, server, &error);
        assert_eq!(outcome, other);
    }

    fn handshake(&mut self, server: ServerId, reply: usize, old: bool) {
        let bytes = self.replies[reply].clone();
        let Ok(hello) = Hello::parse(&bytes) else {
            return;
        };
        let generation = self.of_pool(server, old);
        self.pass(Input::Handshake {
            server,
            generation,
            hello: hello.clone(),
            reply: &bytes,
        });
        let rtt = self.separate.rtt(server);
        self.separate
            .hello(self.now, (server, generation, rtt), hello, &bytes);
    }

    fn played(&mut self, server: ServerId, reply: Option<usize>) {
        let generation = self.of_pool(server, false);
        let millis = Duration::from_millis(7);
        let bytes = reply.map(|reply| self.replies[reply].clone());
        let broken = || Error::new(ErrorKind::Timeout, Stage::Hello, "played");
        let outcome = match &bytes {
            Some(bytes) => Hello::parse(bytes).map(|hello| (hello, &**bytes)),
            None => Err(broken()),
        };
        self.pass(Input::Played {
            server,
            outcome: outcome.clone(),
            rtt: millis,
        });
        match outcome {
            Ok((hello, bytes)) => {
                let rtt = Rtt {
                    average: millis,
                    minimum: millis,
                    p90: millis,
                };
                self.separate
                    .hello(self.now, (server, generation, Some(rtt)), hello, bytes);
            }
            Err(error) => self.apply(machine::Input::Checked {
                server,
                outcome: Err(error),
                rtt: None,
            }),
        }
    }

    /// Returns the generation of the server's pool, or the one before.
    fn of_pool(&self, server: ServerId, old: bool) -> Generation {
        let generation = self.deployment.generation(server, None).unwrap_or_default();
        Generation::from_u64(generation.as_u64().saturating_sub(u64::from(old)))
    }

    fn compare(&mut self, step: &dyn core::fmt::Debug) {
        assert_eq!(self.log, self.separate.log, "after {step:?}");
        assert_eq!(self.deployment.description(), self.separate.description());
        for own in &self.deployment.servers {
            let timer = Timer::Server(own.id);
            for wanted in [false, true] {
                let deadline = self.deployment.deadline_of(timer, wanted);
                assert_eq!(deadline, self.separate.deadline(own.id, wanted));
            }
            assert_eq!(self.deployment.rtt(own.id), self.separate.rtt(own.id));
        }
        self.log = Log::default();
        self.separate.log = Log::default();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_deployment_does_what_separate_machines_did(
        polled in any::<bool>(),
        legacy_retry in prop::bool::weighted(0.2),
        sharded in prop::bool::weighted(0.3),
        steps in vec(step(), 1..120),
    ) {
        let mut options = if polled { polled_set() } else { options(&["a", "b"]) };
        options.legacy_retry_before_unknown = legacy_retry;
        if !sharded {
            options.replica_set = Some("rs".into());
        }
        let mut pair = Pair::new(&options);
        pair.pass(Input::Open);
        pair.apply(machine::Input::Open);
        pair.settle(false);
        pair.compare(&"open");
        for step in &steps {
            pair.run(step);
            pair.compare(step);
        }
    }
}

fn polled_set() -> Options {
    polled(&["a", "b"])
}
