//! A deployment with scripted answers. Tests compare its outputs as strings.

use std::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    sync::Arc,
    vec,
    vec::Vec,
};

use bson::{Document, doc, oid};

pub(super) use crate::{
    address::ServerAddress,
    deployment::*,
    error::{Error, ErrorKind, Stage},
    hello::{Handshake, HelloReply},
    ids::Generation,
    options::{Detector, Options, ServerMonitoringMode},
    report::ErrorReport,
    server::ServerType,
};

pub(super) struct World {
    pub(super) deployment: Deployment,
    pub(super) now: Instant,
    names: BTreeMap<ServerId, String>,
    /// The outstanding requests and their start times.
    pub(super) asked: BTreeMap<ConnId, Instant>,
}

pub(super) fn options(seeds: &[&str]) -> Options {
    let address = |seed: &&str| ServerAddress::parse(seed).unwrap();
    Options::new(seeds.iter().map(address).collect())
}

/// Returns options for polling mode, with the given seeds.
pub(super) fn polled(seeds: &[&str]) -> Options {
    let mut options = options(seeds);
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    options
}

/// Returns the reply of a member that supports streaming, in a set with the members `a` and `b`.
pub(super) fn member(primary: bool, counter: i64) -> Document {
    doc! {
        "ok": 1, "helloOk": true, "isWritablePrimary": primary, "secondary": !primary,
        "setName": "rs", "hosts": ["a", "b"], "minWireVersion": 0, "maxWireVersion": 17,
        "topologyVersion": {
            "processId": oid::ObjectId::from_bytes([1; 12]), "counter": counter,
        },
    }
}

/// Returns the reply of a standalone server that does not support streaming.
pub(super) fn standalone() -> Document {
    doc! { "ok": 1, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 17 }
}

impl World {
    /// Creates a deployment that is not open yet. The clock starts at 1000 ms.
    pub(super) fn new(options: &Options) -> Self {
        let mut config = MonitorConfig::new(options, Arc::new(Handshake::new([])), false);
        config.ping_delay = Duration::ZERO;
        let deployment = Deployment::new(options.clone(), Arc::new(config), Rng::new(1));
        Self {
            deployment: deployment.with_srv_polling(options),
            now: Instant::from_millis(1000),
            names: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// Creates an open deployment in inline mode. The clock starts at 1000 ms.
    pub(super) fn inline(options: &Options) -> Self {
        let mut world = Self::new(options);
        world.deployment = world.deployment.with_scans(options);
        assert!(!world.handle(Input::Open).is_empty());
        world
    }

    /// Creates an open deployment. The clock starts at 1000 ms.
    pub(super) fn open(options: &Options) -> Self {
        let mut world = Self::new(options);
        assert!(!world.handle(Input::Open).is_empty());
        world
    }

    /// Passes an input and returns the outputs in short form.
    pub(super) fn handle(&mut self, input: Input) -> Vec<String> {
        let outputs = self.deployment.handle(self.now, input);
        self.describe(outputs)
    }

    pub(super) fn error(&mut self, name: &str, error: &ErrorReport) -> Vec<String> {
        let server = self.id(name);
        let (_, outputs) = self.deployment.handle_error(self.now, server, error);
        self.describe(outputs)
    }

    /// Reports that a pooled connection of the first generation broke.
    pub(super) fn network_error(&mut self, name: &str) -> Vec<String> {
        let error = ErrorReport::new(Generation::FIRST, Error::network(Stage::Operation, "reset"));
        self.error(name, &error)
    }

    pub(super) fn due(&mut self, name: &str, wanted: bool) -> Vec<String> {
        let timer = Timer::Server(self.id(name));
        self.handle(Input::Due { timer, wanted })
    }

    pub(super) fn connected(&mut self, conn: ConnId) -> Vec<String> {
        self.handle(Input::Connected { conn })
    }

    pub(super) fn reply(&mut self, conn: ConnId, reply: &Document, more: bool) -> Vec<String> {
        let bytes = reply.to_vec().unwrap();
        let sent = self.asked.get(&conn).copied().unwrap_or(self.now);
        self.handle(Input::Reply {
            conn,
            sent,
            at: self.now,
            reply: HelloReply::parse(bytes),
            more_to_come: more,
        })
    }

    pub(super) fn failed(&mut self, conn: ConnId, kind: ErrorKind) -> Vec<String> {
        let error = Error::new(kind, Stage::Hello, "scripted");
        let at = self.now;
        self.handle(Input::Failed { conn, at, error })
    }

    /// Advances the clock to `millis` after the epoch, without firing a timer.
    pub(super) fn wait_until(&mut self, millis: u64) {
        assert!(self.now <= Instant::from_millis(millis));
        self.now = Instant::from_millis(millis);
    }

    /// Opens the connection of the server's check, and answers its hello.
    pub(super) fn check(&mut self, name: &str, reply: &Document) -> Vec<String> {
        let _ = self.due(name, false);
        let conn = self.conn(name, Role::Check);
        let _ = self.connected(conn);
        self.reply(conn, reply, false)
    }

    /// Checks the primary `a` and the secondary `b`.
    pub(super) fn check_both(&mut self) {
        for (name, primary) in [("a", true), ("b", false)] {
            let _ = self.check(name, &member(primary, 1));
        }
    }

    /// Returns the server's newest connection that has the given role.
    pub(super) fn conn(&self, name: &str, role: Role) -> ConnId {
        let server = self.deployment.servers.get(self.id(name)).unwrap();
        match role {
            Role::Check => server.check.conn(),
            Role::Ping => server.ping.conn(),
            Role::Probe => server.probe.conn(),
        }
    }

    pub(super) fn id(&self, name: &str) -> ServerId {
        let own = |(_, other): &(&ServerId, &String)| *other == name;
        *self.names.iter().rev().find(own).unwrap().0
    }

    /// Returns the deadline of the server in milliseconds.
    pub(super) fn deadline(&self, name: &str, wanted: bool) -> Option<u64> {
        let timer = Timer::Server(self.id(name));
        let deadline = self.deployment.deadline_of(timer, wanted)?;
        Some(deadline.as_nanos() / 1_000_000)
    }

    pub(super) fn server_type(&self, name: &str) -> ServerType {
        let address = ServerAddress::parse(name).unwrap();
        self.deployment.description().server(&address).unwrap().server_type
    }

    /// Returns the outputs in short form. Checks that the deployment knows its own deadlines.
    pub(super) fn describe(&mut self, outputs: Outputs) -> Vec<String> {
        for server in self.deployment.servers.iter() {
            let fresh = server.fresh_deadlines(self.deployment.servers.host());
            assert_eq!(server.deadlines(), fresh, "of {}, after {outputs:?}", server.id);
        }
        let mut text = Vec::new();
        for output in outputs {
            if let Output::OpenServer { server, address, .. } = &output {
                self.names.insert(*server, address.host().to_string());
            }
            if let Output::Send { conn, .. } | Output::Read { conn, .. } = &output {
                self.asked.insert(*conn, self.now);
            }
            text.push(self.describe_one(&output));
        }
        text
    }

    fn describe_one(&self, output: &Output) -> String {
        let of = |server: &ServerId| &self.names[server];
        let on = |conn: &ConnId| {
            let name = of(&conn.server);
            match conn.role {
                Role::Check => format!("{name}{}", conn.number),
                Role::Ping => format!("{name}{} for pings", conn.number),
                Role::Probe => format!("{name}{} for a probe", conn.number),
            }
        };
        match output {
            Output::Connect { conn, .. } => format!("connect {}", on(conn)),
            Output::Send { conn, request, .. } => match request.awaiting {
                Some(_) => format!("await on {}", on(conn)),
                None => format!("hello on {}", on(conn)),
            },
            Output::Read { conn, .. } => format!("read on {}", on(conn)),
            Output::Disconnect { conn } => format!("disconnect {}", on(conn)),
            Output::Wake { server } => format!("wake {}", of(server)),
            Output::OpenServer { server, monitored, .. } => match monitored {
                true => format!("open {}", of(server)),
                false => format!("open {} unmonitored", of(server)),
            },
            Output::CloseServer { server } => format!("close {}", of(server)),
            Output::PoolReady { server } => format!("ready {}", of(server)),
            Output::PoolClear { server, clear } => {
                format!("clear {} to {}", of(server), clear.generation)
            }
            Output::Publish(_) => "publish".into(),
            Output::Emit(event) => match event.address() {
                Some(address) => format!("{} {}", event.name().as_str(), address.host()),
                None => event.name().as_str().into(),
            },
            Output::LookUp { name, .. } => format!("look up {name}"),
            Output::Choose => "choose".into(),
            Output::Probe { server } => format!("probe {}", of(server)),
            Output::Finish(Ok(Some(server))) => format!("chosen {}", of(server)),
            Output::Finish(outcome) => format!("finish {outcome:?}"),
        }
    }
}
