//! A deployment with scripted answers. Tests compare its outputs as strings.

use std::collections::BTreeMap;
pub(super) use std::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

pub(super) use crate::{
    address::ServerAddress,
    deployment::*,
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    event::EventKind,
    hello::{Handshake, Hello},
    ids::{ElectionTuple, Generation, TopologyVersion},
    options::{Detector, Options, ServerMonitoringMode},
    report::ErrorReport,
    server::{ServerDescription, ServerType, WireVersions},
    topology::TopologyType,
};

pub(super) struct World {
    pub(super) deployment: Deployment,
    pub(super) now: Instant,
    /// The outputs of the last call.
    pub(super) last: Vec<Output>,
    names: BTreeMap<ServerId, String>,
    /// The outstanding requests and their start times.
    pub(super) asked: BTreeMap<ConnId, Instant>,
}

pub(super) fn address(name: &str) -> ServerAddress {
    ServerAddress::parse(name).unwrap()
}

pub(super) fn addresses(names: &[&str]) -> Box<[ServerAddress]> {
    names.iter().map(|name| address(name)).collect()
}

pub(super) fn options(seeds: &[&str]) -> Options {
    Options::new(addresses(seeds).into())
}

/// Returns options for polling mode, with the given seeds.
pub(super) fn polled(seeds: &[&str]) -> Options {
    let mut options = options(seeds);
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    options
}

pub(super) fn version(process: u8, counter: i64) -> TopologyVersion {
    TopologyVersion { process_id: ObjectId::from_bytes([process; 12]), counter }
}

/// Returns the reply of a server that does not support streaming. A member is in the set `rs` with
/// the members `a` and `b`.
pub(super) fn hello(server_type: ServerType) -> Hello {
    let of_set = matches!(
        server_type,
        ServerType::RsPrimary
            | ServerType::RsSecondary
            | ServerType::RsArbiter
            | ServerType::RsOther
    );
    Hello {
        server_type,
        wire_versions: WireVersions { min: 0, max: 17 },
        set_name: of_set.then(|| "rs".into()),
        hosts: if of_set { addresses(&["a", "b"]) } else { [].into() },
        ..Hello::default()
    }
}

/// Returns the reply of a member that supports streaming.
pub(super) fn member(primary: bool, counter: i64) -> Hello {
    let server_type = if primary { ServerType::RsPrimary } else { ServerType::RsSecondary };
    Hello { topology_version: Some(version(1, counter)), ..hello(server_type) }
}

/// Returns the reply of the primary that was elected in `election`.
pub(super) fn elected(election: u8) -> Hello {
    let election_id = Some(ObjectId::from_bytes([election; 12]));
    let election = ElectionTuple { election_id, set_version: Some(1) };
    Hello { election, ..hello(ServerType::RsPrimary) }
}

pub(super) fn standalone() -> Hello {
    hello(ServerType::Standalone)
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
            last: Vec::new(),
            names: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
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

    pub(super) fn error(&mut self, name: &str, error: &ErrorReport) -> (ErrorOutcome, Vec<String>) {
        let server = self.id(name);
        let (outcome, outputs) = self.deployment.handle_error(self.now, server, error);
        (outcome, self.describe(outputs))
    }

    /// Reports that a pooled connection of the first generation broke.
    pub(super) fn network_error(&mut self, name: &str) -> Vec<String> {
        let error = ErrorReport::new(Generation::FIRST, Error::network(Stage::Operation, "reset"));
        self.error(name, &error).1
    }

    pub(super) fn due(&mut self, name: &str, wanted: bool) -> Vec<String> {
        let timer = Timer::Server(self.id(name));
        self.handle(Input::Due { timer, wanted })
    }

    pub(super) fn connected(&mut self, conn: ConnId) -> Vec<String> {
        self.handle(Input::Connected { conn })
    }

    pub(super) fn reply(&mut self, conn: ConnId, reply: Hello, more_to_come: bool) -> Vec<String> {
        let sent = self.asked.get(&conn).copied().unwrap_or(self.now);
        let (at, reply) = (self.now, Ok(reply).into());
        self.handle(Input::Reply { conn, sent, at, reply, more_to_come })
    }

    pub(super) fn failed(&mut self, conn: ConnId, kind: ErrorKind) -> Vec<String> {
        let error = Error::new(kind, Stage::Hello, "scripted");
        self.handle(Input::Failed { conn, at: self.now, error })
    }

    /// Advances the clock to `millis` after the epoch, without firing a timer.
    pub(super) fn wait_until(&mut self, millis: u64) {
        assert!(self.now <= Instant::from_millis(millis));
        self.now = Instant::from_millis(millis);
    }

    /// Runs the server's next check up to its request, without firing other timers. Returns the
    /// connection.
    pub(super) fn ask(&mut self, name: &str) -> ConnId {
        loop {
            let conn = self.conn(name, Role::Check);
            let check = &self.deployment.servers.get(conn.server).unwrap().check;
            match check.awaits(conn) {
                Some(Waiting::Reply) => return conn,
                Some(Waiting::Connection) => drop(self.connected(conn)),
                None => {
                    self.now = self.now.max(check.deadline().unwrap());
                    let _ = self.due(name, false);
                }
            }
        }
    }

    /// Runs the server's next check, without firing other timers.
    pub(super) fn check(&mut self, name: &str, reply: Hello) -> Vec<String> {
        let conn = self.ask(name);
        self.reply(conn, reply, false)
    }

    /// Lets the server's next check fail.
    pub(super) fn fail(&mut self, name: &str, kind: ErrorKind) -> Vec<String> {
        let conn = self.ask(name);
        self.failed(conn, kind)
    }

    /// Checks the primary `a` and the secondary `b`.
    pub(super) fn check_both(&mut self) {
        for (name, primary) in [("a", true), ("b", false)] {
            let _ = self.check(name, member(primary, 1));
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

    pub(super) fn topology(&self) -> &TopologyDescription {
        self.deployment.description()
    }

    pub(super) fn server(&self, name: &str) -> &ServerDescription {
        self.topology().server(&address(name)).unwrap()
    }

    pub(super) fn id(&self, name: &str) -> ServerId {
        self.server(name).id
    }

    /// Returns the deadline of the server in milliseconds.
    pub(super) fn deadline(&self, name: &str, wanted: bool) -> Option<u64> {
        let timer = Timer::Server(self.id(name));
        let deadline = self.deployment.deadline_of(timer, wanted)?;
        Some(deadline.as_nanos() / 1_000_000)
    }

    pub(super) fn server_type(&self, name: &str) -> ServerType {
        self.server(name).server_type
    }

    /// Returns the outputs in short form. Checks that the stored deadlines are up to date.
    fn describe(&mut self, outputs: Outputs) -> Vec<String> {
        for server in self.deployment.servers.iter() {
            let fresh = server.fresh_deadlines(self.deployment.servers.host());
            assert_eq!(server.deadlines(), fresh, "of {}, after {outputs:?}", server.id);
        }
        self.last = outputs.into_iter().collect();
        for output in &self.last {
            if let Output::OpenServer { server, address, .. } = output {
                self.names.insert(*server, address.host().to_string());
            }
            if let Output::Send { conn, .. } | Output::Read { conn, .. } = output {
                self.asked.insert(*conn, self.now);
            }
        }
        self.last.iter().map(|output| self.describe_one(output)).collect()
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
                let how = if clear.interrupt_in_use { " interrupting" } else { "" };
                format!("clear {} to {}{how}", of(server), clear.generation)
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
