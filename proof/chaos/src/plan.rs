//! The plan of a seed: a deployment, a client with its route to the deployment, a load and faults.

mod faults;

use std::{fmt, str::FromStr, time::Duration};

use sdam_core::{
    address::ServerAddress,
    options::{Detector, Options, ProxyOptions, ServerMonitoringMode, TlsOptions},
    pool::PoolOptions,
    rng::Rng,
};
use sdam_sim::{
    Blueprint,
    config::{MemberConfig, SetConfig},
    runtime::{Disturbance, Sim},
    scenario::Scenario,
    timing::Timing,
    version::ServerVersion,
};

/// The commands that applications run in turn on pooled connections. Only the reply to `buildInfo`
/// has the field `version`.
pub(crate) const COMMANDS: [&str; 2] = ["ping", "buildInfo"];

/// The time over which clients spread their background connections, if they spread them at all.
const SPREAD: Duration = Duration::from_secs(2);

/// The kind of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// All faults, on every kind of deployment.
    #[default]
    Random,
    /// Primaries step down, die or become unresponsive.
    Failover,
    /// Members are disconnected from each other or from the client.
    Partition,
    /// Servers and connections go up and down continually.
    Flapping,
    /// All faults, as in [`Random`](Self::Random), with a single-threaded client.
    Scan,
}

impl Kind {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|kind| kind.to_string() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(ToString::to_string).collect();
            format!("`{name}` is not a scenario; use one of {names:?}")
        })
    }
}

/// The kind of deployment as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A replica set that the client discovers.
    ReplicaSet,
    /// One member of a replica set, with a direct connection.
    Direct,
    /// A sharded cluster.
    Sharded,
    /// One server.
    Standalone,
    /// A sharded cluster behind a load balancer.
    LoadBalanced,
}

/// The way in which the topology ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The topology is closed.
    Close,
    /// The last handle is dropped.
    Drop,
    /// The topology is closed during the faults, after this time.
    Abrupt(Duration),
}

/// Everything that a seed determines. Two plans with the same seed are equal.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed that determines this plan.
    pub seed: u64,
    /// The kind of faults.
    pub kind: Kind,
    /// The kind of deployment.
    pub shape: Shape,
    /// The deployment to simulate.
    pub blueprint: Blueprint,
    /// The faults to inject.
    pub scenario: Scenario,
    /// The client's route to the deployment.
    pub access: Access,
    /// True if applications use the client during the faults.
    pub load: bool,
    /// The way in which the topology ends.
    pub ending: Ending,
    /// The options of the client's connection pools; `None` if its pools open no connections.
    pub pool: Option<PoolOptions>,
    /// True if the client's host stalls again and again.
    pub stalls: bool,
    /// The seed by which the simulation is [disturbed](sdam_sim::runtime::Sim::disturb), if it is.
    pub disturbance: Option<u64>,
    client: Client,
}

/// The client's configuration.
#[derive(Clone, Copy, Debug)]
struct Client {
    heartbeat: Duration,
    connect_timeout: Duration,
    mode: ServerMonitoringMode,
    /// True if the first member is the only seed.
    one_seed: bool,
    /// True if the client sets the option `replicaSet`.
    has_set_name: bool,
}

impl Plan {
    /// Creates the plan of `seed`.
    pub fn new(seed: u64, kind: Kind) -> Self {
        // The simulation uses the same seed, so the plan is drawn from a different sequence of
        // random numbers.
        let mut rng = Rng::new(!seed).fork();
        let deployed = deploy(kind, &mut rng);
        let client = Client::draw(&mut rng);
        // The route is drawn from a separate generator, so that the faults of a seed's deployment
        // do not depend on it.
        let mut access_rng = Rng::new(seed ^ 0xACCE).fork();
        let access = Access::draw(deployed.shape, &mut access_rng);
        let mut scenario = faults::scenario(
            kind,
            &deployed,
            access,
            client.has_set_name,
            &mut rng,
            &mut access_rng,
        );
        let pool = pool_options(seed);
        if pool.is_some() {
            faults::add_bad_replies(seed, &deployed, &mut scenario);
        }
        Self {
            seed,
            kind,
            shape: deployed.shape,
            blueprint: deployed.blueprint,
            scenario,
            access,
            load: true,
            ending: match rng.below(8) {
                0 | 1 => Ending::Drop,
                2 => Ending::Abrupt(Duration::from_millis(rng.below(20_000))),
                _ => Ending::Close,
            },
            pool,
            stalls: kind != Kind::Scan && Rng::new(seed ^ 0x57A1).fork().below(8) == 0,
            disturbance: (Rng::new(seed ^ 0xBEEF).fork().below(2) == 0).then_some(seed),
            client,
        }
    }

    /// Returns a plan that is equal to this one, except that it has the faults in `scenario`.
    #[must_use]
    pub fn with_scenario(&self, scenario: Scenario) -> Self {
        Self { scenario, ..self.clone() }
    }

    /// Adds the client's configuration to the options of the deployment's connection string.
    pub fn configure(&self, options: &mut Options) {
        options.heartbeat_frequency = Some(self.client.heartbeat);
        options.connect_timeout = Some(self.client.connect_timeout);
        options.server_monitoring_mode = self.client.mode;
        self.access.configure(options);
        // The detector is chosen independently, so that the seed's faults do not depend on it.
        options.detector = (self.seed % 4 >= 2).then_some(Detector::PROBING);
        options.spread = self.spread();
        // In clients that are not single-threaded, this option only causes a warning.
        options.server_selection_try_once = (self.seed % 8 == 3).then_some(true);
        options.early_dial = Rng::new(self.seed ^ 0xD1A1).fork().below(8) != 0;
        match self.shape {
            Shape::ReplicaSet => {
                if self.client.one_seed {
                    options.seeds = vec![first()];
                }
                if !self.client.has_set_name {
                    options.replica_set = None;
                }
            }
            Shape::Direct => {
                options.seeds = vec![first()];
                options.direct_connection = Some(true);
                if !self.client.has_set_name {
                    options.replica_set = None;
                }
            }
            Shape::Standalone if self.client.one_seed => options.direct_connection = None,
            Shape::Sharded | Shape::Standalone | Shape::LoadBalanced => {}
        }
    }

    /// Returns whether only a majority of the set is healed after the faults. This is chosen
    /// independently, so that the seed's faults do not depend on it.
    pub fn heals_a_majority(&self) -> bool {
        let is_drawn = Rng::new(self.seed ^ 0xC0DE).fork().below(3) == 0;
        is_drawn && self.shape == Shape::ReplicaSet && self.kind != Kind::Scan
    }

    /// Returns the maximum time that the client needs to discover the deployment after it has
    /// settled: the sum of the times for a failed SRV look-up, a check that times out, the wait
    /// after this check with its random delay, and a check that succeeds.
    pub fn convergence_limit(&self) -> Duration {
        let failed = self.client.heartbeat + self.client.connect_timeout;
        let found = if self.access.srv { MAX_TTL + failed } else { Duration::ZERO };
        found + 2 * failed + self.spread() + Duration::from_secs(1)
    }

    /// Returns whether crowds of applications ask a pool for connections again and again.
    pub(crate) fn has_crowds(&self) -> bool {
        self.disturbance.is_some() && Rng::new(self.seed ^ 0xC40D).fork().below(8) == 0
    }

    /// Returns the maximum time by which a timer is late.
    pub(crate) fn lateness(&self) -> Duration {
        self.disturbance.map_or(Duration::ZERO, |_| Disturbance::MAX_LATENESS)
    }

    /// Returns the time over which the client spreads its background connections. This is chosen
    /// independently, so that the seed's faults do not depend on it.
    fn spread(&self) -> Duration {
        let is_drawn = Rng::new(self.seed ^ 0x59EA).fork().below(8) == 0;
        if is_drawn { SPREAD } else { Duration::ZERO }
    }

    /// Returns the heartbeat interval. It is also the interval until the next SRV look-up after a
    /// failed one.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.client.heartbeat
    }
}

/// Draws the options of connection pools. They are drawn independently, so that the seed's faults
/// do not depend on them.
fn pool_options(seed: u64) -> Option<PoolOptions> {
    let mut rng = Rng::new(seed ^ 0x9001).fork();
    if rng.below(2) == 0 {
        return None;
    }
    let mut options = PoolOptions::default();
    options.max_pool_size = pick(&mut rng, &[1, 2, 4, 0]);
    options.min_pool_size = pick(&mut rng, &[0, 0, 1]);
    options.max_connecting = pick(&mut rng, &[1, 2, 3]);
    options.max_idle_time = pick(&mut rng, &[None, Some(Duration::from_secs(2))]);
    let timeout = pick(&mut rng, &[100, 1000, 5000]);
    options.wait_queue_timeout = Some(Duration::from_millis(timeout));
    Some(options)
}

impl Client {
    fn draw(rng: &mut Rng) -> Self {
        let millis = |rng: &mut Rng, of: &[u64]| Duration::from_millis(pick(rng, of));
        Self {
            heartbeat: millis(rng, &[500, 500, 1000, 2000, 5000, 10_000]),
            connect_timeout: millis(rng, &[150, 400, 1000, 3000, 10_000]),
            mode: pick(
                rng,
                &[
                    ServerMonitoringMode::Auto,
                    ServerMonitoringMode::Stream,
                    ServerMonitoringMode::Poll,
                ],
            ),
            one_seed: rng.below(3) == 0,
            has_set_name: rng.below(4) > 0,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = &self.client;
        write!(
            f,
            "{:?}, {}{}heartbeat {:?}, connect timeout {:?}, {:?}, {}{}{}{}load {}, {:?}",
            self.shape,
            if self.stalls { "with stalls, " } else { "" },
            self.access,
            client.heartbeat,
            client.connect_timeout,
            client.mode,
            if client.one_seed { "one seed, " } else { "" },
            if client.has_set_name { "" } else { "no set name, " },
            if self.heals_a_majority() { "a majority is healed, " } else { "" },
            if self.disturbance.is_some() { "disturbed, " } else { "" },
            match (self.load, self.has_crowds()) {
                (false, _) => "off",
                (true, false) => "on",
                (true, true) => "with crowds",
            },
            self.ending,
        )
    }
}

/// The client's route to the deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// True if the servers require TLS.
    pub tls: bool,
    /// The proxy that the client uses, if any.
    pub proxy: ProxyUse,
    /// True if the client finds the mongoses of a sharded cluster through SRV records.
    pub srv: bool,
}

/// The kind of proxy that a client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyUse {
    /// No proxy.
    #[default]
    None,
    /// A proxy without authentication.
    Anonymous,
    /// A proxy that requires a user name and a password.
    Login,
}

/// The host of the SRV connection string.
const SRV_HOST: &str = "cluster.sim.test";
/// The name of the SRV records.
pub(crate) const SRV_NAME: &str = "_mongodb._tcp.cluster.sim.test";
/// The maximum time to live of the SRV records that a plan sets.
const MAX_TTL: Duration = Duration::from_secs(90);
/// The user name and password of the proxy.
const LOGIN: (&str, &str) = ("user", "password");

impl Access {
    /// Direct plain-text connections to the servers' addresses.
    pub const PLAIN: Self = Self { tls: false, proxy: ProxyUse::None, srv: false };

    fn draw(shape: Shape, rng: &mut Rng) -> Self {
        Self {
            tls: rng.below(3) == 0,
            proxy: match rng.below(8) {
                0 => ProxyUse::Anonymous,
                1 => ProxyUse::Login,
                _ => ProxyUse::None,
            },
            srv: rng.below(2) == 0 && shape == Shape::Sharded,
        }
    }

    /// Returns whether there is a proxy.
    pub fn is_proxied(self) -> bool {
        self.proxy != ProxyUse::None
    }

    /// Sets up TLS on the servers, the proxy and the SRV records. Returns the connection string.
    pub(crate) fn prepare(self, sim: &Sim) -> String {
        if self.tls {
            sim.tls().require();
        }
        if self.is_proxied() {
            let login = (self.proxy == ProxyUse::Login).then_some(LOGIN);
            sim.proxies().add(proxy(), login);
        }
        if self.srv { sim.dns().publish(SRV_HOST, Duration::from_secs(60)) } else { sim.uri() }
    }

    /// Sets the client's options.
    fn configure(self, options: &mut Options) {
        options.tls = self.tls.then(TlsOptions::default);
        let proxy = proxy();
        let port = proxy.port().unwrap_or_default();
        let own = ProxyOptions::new(proxy.host(), port);
        options.proxy = match self.proxy {
            ProxyUse::None => None,
            ProxyUse::Anonymous => Some(own),
            ProxyUse::Login => Some(own.with_credential(LOGIN.0, LOGIN.1)),
        };
    }
}

fn proxy() -> ServerAddress {
    ServerAddress::new("proxy", 1080)
}

/// Returns the address of a mongos, in a domain that SRV records may name.
fn mongos(index: u64) -> ServerAddress {
    let host = host(index);
    ServerAddress::new(&format!("{}.sim.test", host.host()), 27017)
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "TLS, " } else { "" })?;
        f.write_str(match self.proxy {
            ProxyUse::None => "",
            ProxyUse::Anonymous => "proxy, ",
            ProxyUse::Login => "proxy with login, ",
        })?;
        f.write_str(if self.srv { "SRV records, " } else { "" })
    }
}

/// A deployment and the properties that the fault generator needs.
struct Deployed {
    shape: Shape,
    blueprint: Blueprint,
    /// The number of processes.
    processes: u64,
    /// True if the last process is initially not a member of the set.
    spare: bool,
}

impl Deployed {
    fn address(&self, process: u64) -> ServerAddress {
        match self.shape {
            Shape::Sharded => mongos(process),
            Shape::LoadBalanced => first(),
            Shape::ReplicaSet | Shape::Direct | Shape::Standalone => host(process),
        }
    }
}

/// The releases that are too old for the client.
const TOO_OLD: &[ServerVersion] = ServerVersion::SERIES.split_at(2).0;
/// The releases that the client supports.
const VERSIONS: &[ServerVersion] = ServerVersion::SERIES.split_at(2).1;

fn deploy(kind: Kind, rng: &mut Rng) -> Deployed {
    let version = pick(rng, VERSIONS);
    let shape = match (kind, rng.below(100)) {
        (Kind::Failover | Kind::Partition, _) | (_, 0..70) => Shape::ReplicaSet,
        (_, 70..82) => Shape::Sharded,
        (_, 82..88) => Shape::Standalone,
        (_, 88..94) => Shape::Direct,
        _ => Shape::LoadBalanced,
    };
    let (processes, blueprint) = match shape {
        Shape::ReplicaSet | Shape::Direct => return replica_set(kind, shape, version, rng),
        Shape::Sharded => {
            let processes = rng.below(3) + 1;
            let blueprint = Blueprint::sharded(processes as u16).at((0..processes).map(mongos));
            (processes, blueprint.version(version))
        }
        Shape::Standalone => (1, Blueprint::standalone().at([first()]).version(version)),
        Shape::LoadBalanced => {
            let processes = rng.below(3) + 1;
            let blueprint =
                Blueprint::load_balanced(processes as u16).at((0..processes).map(|_| first()));
            (processes, blueprint.version(version.max(ServerVersion::V5_0)))
        }
    };
    Deployed { shape, blueprint, processes, spare: false }
}

fn replica_set(kind: Kind, shape: Shape, version: ServerVersion, rng: &mut Rng) -> Deployed {
    let min = if matches!(kind, Kind::Random | Kind::Scan) { 1 } else { 3 };
    let members = min + rng.below(6 - min);
    let mut config = SetConfig::new("rs", (0..members).map(host));
    let (mut arbiter, mut hidden) = (false, false);
    for own in config.members.iter_mut().skip(1) {
        let plain = || MemberConfig::new(own.address.clone());
        *own = match rng.below(20) {
            0 | 1 if !arbiter => {
                arbiter = true;
                plain().arbiter()
            }
            2 | 3 if !hidden => {
                hidden = true;
                plain().hidden()
            }
            4 | 5 => plain().priority(2.0),
            6 => plain().priority(0.0),
            7 => plain().non_voting(),
            _ => plain(),
        };
        if rng.below(3) == 0 {
            *own = own.clone().tag("dc", pick(rng, &["ny", "la"]));
        }
    }
    let spare = rng.below(3) == 0;
    let mut blueprint = Blueprint::replica_set(config).version(version);
    // Shorter intervals allow more elections in a run.
    if rng.below(3) == 0 {
        blueprint = blueprint.timing(Timing::fast());
    }
    if spare {
        blueprint = blueprint.spares(1).at((0..=members).map(host));
    }
    Deployed { shape, blueprint, processes: members + u64::from(spare), spare }
}

/// Returns the address of the member that is never removed, so that the client can always discover
/// the others.
pub(crate) fn first() -> ServerAddress {
    host(0)
}

fn host(index: u64) -> ServerAddress {
    let name = ["a", "b", "c", "d", "e", "f"];
    ServerAddress::new(name.get(index as usize).copied().unwrap_or("g"), 27017)
}

/// Picks one of several values.
///
/// # Panics
/// If `of` is empty.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}
