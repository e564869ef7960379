//! A driver with scripted servers instead of a network.

use std::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::super::{
    super::{Outputs, topology::Topology},
    *,
};
use crate::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    ids::{ElectionTuple, ObjectId},
    options::Options,
    server::{Rtt, ServerType, WireVersions},
};

/// The outcome of a server's check, and its duration in milliseconds.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few values exist")]
pub(super) enum Answer {
    Is(u64, Hello),
    /// A network error.
    Down(u64),
    /// A command error, such as `ok: 0`.
    Refuses(u64),
}

/// A topology, its scans, and the current answers of its servers.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) topology: Topology,
    pub(super) scan: Scans,
    /// The time after which scans begin with an SRV look-up; `None` if there is no SRV record.
    pub(super) look_up: Option<Instant>,
    pub(super) answers: BTreeMap<ServerAddress, Answer>,
    /// The server type that operations require.
    pub(super) wanted: ServerType,
    /// The idle time of connections.
    pub(super) idle: Option<Duration>,
    /// The outcomes of the next probes, in order; all probes after these succeed.
    pub(super) probes: Vec<bool>,
    /// The duration of a probe that gets no answer.
    pub(super) patience: Duration,
    pub(super) log: Vec<String>,
}

/// The last step of a request that selects no server.
pub(super) const REST: Step = Step::Output(Output::Finish(Ok(None)));

pub(super) fn address(name: &str) -> ServerAddress {
    ServerAddress::new(name, 27017)
}

fn addresses(names: &str) -> Vec<ServerAddress> {
    names.split_whitespace().map(address).collect()
}

/// Returns the reply of a member of the set `rs` that names `members`.
pub(super) fn member(server_type: ServerType, members: &str) -> Hello {
    Hello {
        server_type,
        wire_versions: WireVersions { min: 0, max: 21 },
        hosts: addresses(members).into(),
        set_name: Some("rs".into()),
        election: ElectionTuple {
            election_id: (server_type == ServerType::RsPrimary)
                .then(|| ObjectId::from_bytes([1; 12])),
            set_version: Some(1),
        },
        ..Hello::default()
    }
}

pub(super) fn primary(members: &str) -> Answer {
    Answer::Is(0, member(ServerType::RsPrimary, members))
}

pub(super) fn secondary(members: &str, primary: Option<&str>) -> Answer {
    let mut hello = member(ServerType::RsSecondary, members);
    hello.primary = primary.map(address);
    Answer::Is(0, hello)
}

pub(super) fn mongos() -> Answer {
    let mut hello = member(ServerType::Mongos, "");
    hello.set_name = None;
    Answer::Is(0, hello)
}

impl World {
    /// Creates a topology with the given seeds and the options that `change` sets, and opens it at
    /// 0 ms.
    pub(super) fn new(seeds: &str, seed: u64, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new(addresses(seeds));
        change(&mut options);
        let mut topology = Topology::new(std::sync::Arc::new(options.clone()));
        let _opened = topology.open(&mut Outputs::default());
        Self {
            now: Instant::EPOCH,
            topology,
            scan: Scans::new(&options, Rng::new(seed)),
            look_up: None,
            answers: BTreeMap::new(),
            wanted: ServerType::RsPrimary,
            idle: None,
            probes: Vec::new(),
            patience: Duration::ZERO,
            log: Vec::new(),
        }
    }

    pub(super) fn answer(&mut self, name: &str, answer: Answer) -> &mut Self {
        self.answers.insert(address(name), answer);
        self
    }

    pub(super) fn at(&mut self, millis: u64) -> &mut Self {
        self.now = Instant::from_millis(millis);
        self
    }

    pub(super) fn tell(&mut self, decide: impl FnOnce(&mut Scans, View<'_>) -> Step) -> Step {
        let view = View {
            now: self.now,
            topology: self.topology.description(),
            look_up_is_due: self.look_up.is_some_and(|due| due <= self.now),
        };
        decide(&mut self.scan, view)
    }

    pub(super) fn request(&mut self, request: ScanRequest) -> Step {
        self.tell(|scan, view| scan.request(view, request))
    }

    /// Takes all steps of a request, and returns the last one.
    pub(super) fn run(&mut self, request: ScanRequest) -> Step {
        let mut step = self.request(request);
        loop {
            step = match self.step(&step) {
                Some(next) => next,
                None => return step,
            };
        }
    }

    /// Selects a server with a timeout of `timeout` milliseconds, and returns the log and the
    /// outcome.
    pub(super) fn select(&mut self, timeout: u64) -> String {
        let first = self.log.len();
        let timeout = Duration::from_millis(timeout);
        let outcome = match self.run(ScanRequest::Select { timeout }) {
            Step::Output(Output::Finish(Ok(Some(server)))) => {
                format!("selected {}", self.name(server))
            }
            Step::Output(Output::Finish(Err(failure))) => format!("{failure:?}"),
            step => format!("{step:?}"),
        };
        let mut lines = self.log.split_off(first);
        lines.push(outcome);
        lines.join(", ")
    }

    /// Takes the step, and returns the next one; `None` after the last one.
    pub(super) fn step(&mut self, step: &Step) -> Option<Step> {
        Some(match *step {
            Step::Check(server) => {
                let retry = self.check(server);
                self.tell(|scan, view| scan.checked(view, retry))
            }
            Step::Wait => match (self.scan.checking(), self.scan.sleeps_until()) {
                (Some(server), _) => Step::Check(server),
                (None, Some(until)) => {
                    assert!(until > self.now, "a wait must end in the future");
                    self.log.push(format!("sleep {}", millis(until)));
                    self.now = until;
                    self.tell(Scans::awake)
                }
                (None, None) => panic!("nothing is waited for"),
            },
            Step::LookUp => {
                self.log.push("look up".into());
                self.now = self.now + Duration::from_millis(5);
                self.look_up = Some(self.now + Duration::from_secs(60));
                self.tell(Scans::looked_up)
            }
            Step::Output(Output::Choose) => {
                let (server, idle) = (self.suitable(), self.idle);
                self.tell(|scan, view| scan.chosen(view, server, idle))
            }
            Step::Output(Output::Probe { server }) => {
                let alive = self.probes.is_empty() || self.probes.remove(0);
                let verdict = if alive { "alive" } else { "dead" };
                self.log.push(format!("probe {} {verdict}", self.name(server)));
                if !alive {
                    self.now = self.now + self.patience;
                    let error = Error::new(ErrorKind::Network, Stage::Operation, "silence");
                    self.apply(server, Err(error));
                }
                self.tell(|scan, view| scan.probed(view, alive))
            }
            Step::Output(_) => return None,
        })
    }

    /// Returns the first suitable server.
    pub(super) fn suitable(&self) -> Option<ServerId> {
        let servers = self.topology.description().servers();
        let mut suitable = servers.iter().filter(|server| server.server_type == self.wanted);
        suitable.next().map(|server| server.id)
    }

    /// Checks a scripted server, and returns whether its monitor would retry.
    pub(super) fn check(&mut self, server: ServerId) -> bool {
        let description = self.topology.description();
        let address = description.server_by_id(server).unwrap().address.clone();
        self.log.push(self.name(server));
        let answer = self.answers.get(&address).cloned();
        let (took, outcome) = match answer.unwrap_or(Answer::Down(0)) {
            Answer::Is(took, hello) => (took, Ok(hello)),
            Answer::Down(took) => (took, Err(failure(ErrorKind::Network))),
            Answer::Refuses(took) => (took, Err(failure(ErrorKind::Command))),
        };
        self.now = self.now + Duration::from_millis(took);
        let retry = matches!(&outcome, Err(error) if error.is_network());
        self.apply(server, outcome);
        retry
    }

    fn apply(&mut self, server: ServerId, outcome: Result<Hello, Error>) {
        let (rtt, outcome) = (Some(Rtt::default()), outcome.map(std::boxed::Box::new));
        let out = &mut Outputs::default();
        let _news = self.topology.checked(self.now, server, outcome, rtt, out);
    }

    fn name(&self, server: ServerId) -> String {
        let description = self.topology.description();
        let server = description.server_by_id(server).unwrap();
        server.address.host().to_string()
    }
}

fn failure(kind: ErrorKind) -> Error {
    Error::new(kind, Stage::Hello, "boom")
}

pub(super) fn millis(at: Instant) -> u128 {
    at.since(Instant::EPOCH).as_millis()
}
