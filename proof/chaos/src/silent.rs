//! Tests of detectors. They measure how soon a silent primary is marked Unknown, and whether any
//! other server is ever marked Unknown.
//!
//! Each seed draws a replica set, a network and applications. For a minute, hosts stall, segments
//! are lost and retransmitted, and servers reply twenty times slower. Then the primary becomes
//! silent: its process is frozen, or the network drops its bytes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::rawdoc;
use sdam::{Criteria, TopologyBuilder};
use sdam_core::{
    address::ServerAddress,
    event::{Event, EventKind},
    options::{Detector, Options},
    rng::Rng,
    time::Instant,
};
use sdam_events::sink::{EventSink, Interest};
use sdam_pool::Pools;
use sdam_sim::{
    Action, Blueprint, MemberId,
    action::{FailCommand, Mode},
    config::SetConfig,
    runtime::{Direction, Frame, Latency, Sim, Verdict},
};
use sdam_transport::spawn::Task;

use crate::record::lock;

type Topology = sdam::Topology<sdam_pool::Pool>;

/// The time at which the disturbances end.
const CALM: Duration = Duration::from_secs(60);
/// The time within which even a client without a detector marks the silent primary Unknown.
const PATIENCE: Duration = Duration::from_secs(30);
/// The minimum time after which TCP retransmits a lost segment. The time doubles with each further
/// retransmission.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// The factor by which a slow server's round trips take longer.
const SLOWDOWN: u32 = 20;

/// The outcome of a test run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The time from the beginning of the silence until the primary was marked Unknown, or `None`
    /// if this took longer than 30 s.
    pub left: Option<Duration>,
    /// The servers that were marked Unknown although they were not silent, each with the time at
    /// which that happened.
    pub wrong: Vec<String>,
    /// The numbers of stalls, slow servers and lost segments, in this order.
    pub disturbances: [u64; 3],
}

/// Network conditions: lost segments and slow members.
#[derive(Debug)]
struct Weather {
    rng: Rng,
    round_trip: Duration,
    /// The probability that a segment is lost, in units of 1/10,000.
    loss: u64,
    /// The periods in which a member is slow.
    slow: Vec<(Instant, Instant, MemberId)>,
    lost: Arc<Mutex<u64>>,
}

impl Weather {
    fn judge(&mut self, frame: &Frame<'_>) -> Verdict {
        let mut delay = Duration::ZERO;
        let mut timeout = RETRANSMISSION + self.round_trip;
        while self.rng.below(10_000) < self.loss {
            delay += timeout;
            timeout *= 2;
            *lock(&self.lost) += 1;
        }
        let is_slow = |(from, to, member): &(Instant, Instant, MemberId)| {
            frame.direction == Direction::ToClient
                && *member == frame.member
                && (*from..*to).contains(&frame.at)
        };
        if self.slow.iter().any(is_slow) {
            delay += self.round_trip * (SLOWDOWN - 1);
        }
        if delay.is_zero() { Verdict::Pass } else { Verdict::Delay(delay) }
    }
}

/// Records the servers that become Unknown because of a detector or a timeout.
#[derive(Debug, Default)]
struct Losses(Mutex<Vec<(Instant, ServerAddress, bool)>>);

impl EventSink for Losses {
    fn emit(&self, event: &Event) {
        let EventKind::ServerDescriptionChanged { previous, new, .. } = &event.kind else {
            return;
        };
        if previous.server_type.is_available() && !new.server_type.is_available() {
            let error = new.error.as_ref().map(ToString::to_string).unwrap_or_default();
            let judged = error.contains("not even to a ping");
            let mut losses = lock(&self.0);
            losses.push((event.at, new.address.clone(), judged));
        }
    }

    fn interest(&self) -> Interest {
        Interest::DESCRIPTIONS
    }
}

/// Runs the test that `seed` determines.
///
/// # Panics
///
/// If the simulation does not start.
#[expect(clippy::expect_used, reason = "the world of a trial is valid")]
pub fn run(seed: u64, detector: Option<Detector>) -> Outcome {
    let mut rng = Rng::new(seed ^ 0x5117);
    let hosts = ["a", "b", "c", "d", "e"].map(|host| ServerAddress::new(host, 27017));
    let count = [3, 3, 5][rng.below(3) as usize];
    let set = SetConfig::new("rs", hosts.into_iter().take(count));
    let sim = Sim::new(seed, &Blueprint::replica_set(set));
    let latency = draw_latency(&mut rng);
    sim.network().set_latency(latency);
    let round_trip = 2 * latency.min + latency.spread;
    let lost = Arc::default();
    let mut weather = Weather {
        rng: rng.fork(),
        round_trip,
        loss: [0, 100, 300, 500][rng.below(4) as usize],
        slow: Vec::new(),
        lost: Arc::clone(&lost),
    };
    let members: Vec<_> = sim.status().members.iter().map(|member| member.id).collect();
    for _ in 0..rng.below(3) {
        let from = Instant::EPOCH + Duration::from_millis(5_000 + rng.below(50_000));
        let to = from + Duration::from_millis(1_000 + rng.below(15_000));
        weather.slow.push((from, to, members[rng.below(members.len() as u64) as usize]));
    }
    let slow = weather.slow.len() as u64;
    sim.network().add_rule(move |frame| weather.judge(frame));

    let mut options = Options::parse(&sim.uri()).expect("the string is valid");
    options.detector = detector;
    let pools = Pools::new();
    let losses = Arc::new(Losses::default());
    let builder = TopologyBuilder::new(options).sink(Arc::clone(&losses)).pools(pools);
    let topology = builder.start(sim.runtime()).expect("the options are valid");
    for _ in 0..=rng.below(8) {
        let work = operate(topology.clone(), sim.runtime().backend.clock, rng.fork());
        sim.runtime().spawner.spawn(Task::new("application", work));
    }
    if rng.below(2) == 0 {
        slow_operations(&sim, &mut rng);
    }
    let mut stalls = 0;
    for _ in 0..rng.below(3) {
        let pause = Duration::from_millis(rng.below(20_000));
        if sim.now() + pause < Instant::EPOCH + CALM {
            sim.run_for(pause);
            let stall = Duration::from_millis(1_000 + rng.below(14_000));
            sim.stall(stall);
            sim.run_for(stall);
            stalls += 1;
        }
    }
    let end = Instant::EPOCH + CALM + Duration::from_millis(rng.below(10_000));
    sim.run_for(end.since(sim.now()));
    let outcome = silence(&sim, &topology, &losses, rng.below(2) == 0);
    sim.block_on(topology.close());
    let lost = *lock(&lost);
    Outcome { disturbances: [stalls, slow, lost], ..outcome }
}

/// Makes the primary silent, and waits until it is marked Unknown.
fn silence(sim: &Sim, topology: &Topology, losses: &Losses, freezes: bool) -> Outcome {
    // After a stall, the client may not have found the primary again, so wait for it.
    while topology.snapshot().description().primary().is_none() {
        sim.run_for(Duration::from_millis(100));
    }
    let Some(primary) = sim.status().primary().map(|own| (own.id, own.address.clone())) else {
        return Outcome::default();
    };
    let (member, address) = primary;
    let since = sim.now();
    if freezes {
        // Freezing a running member cannot fail.
        let _ = sim.apply(&Action::Freeze(member.into()));
    } else {
        sim.network().blackhole(member, true);
    }
    let left = || {
        let losses = lock(&losses.0);
        let mut own = losses.iter().filter(|(at, own, _)| *at >= since && *own == address);
        own.next().map(|(at, ..)| at.since(since))
    };
    while left().is_none() && sim.now().since(since) < PATIENCE {
        sim.run_for(Duration::from_millis(50));
    }
    let left = left();
    let all = lock(&losses.0);
    let wrong = all.iter().filter(|(at, own, judged)| *judged && (*at < since || *own != address));
    Outcome {
        wrong: wrong.map(|(at, own, _)| format!("{own} at {at:?}")).collect(),
        left,
        ..Outcome::default()
    }
}

/// Returns the number of simulation events that an idle client causes within 1,000 s.
///
/// # Panics
///
/// If the simulation does not start.
#[expect(clippy::expect_used, reason = "the world of a trial is valid")]
pub fn idle_events(detector: Option<Detector>) -> u64 {
    let sim = Sim::new(0, &Blueprint::replica_set(3));
    let mut options = Options::parse(&sim.uri()).expect("the string is valid");
    options.detector = detector;
    let builder = TopologyBuilder::new(options);
    let topology = builder.start(sim.runtime()).expect("the options are valid");
    sim.run_for(Duration::from_secs(1000));
    sim.block_on(topology.close());
    sim.steps()
}

/// Makes the primary block some of the next operations for several seconds.
fn slow_operations(sim: &Sim, rng: &mut Rng) {
    sim.run_for(Duration::from_secs(2));
    let Some(primary) = sim.status().primary().map(|own| own.id) else {
        return;
    };
    let mut slow = FailCommand::default();
    slow.mode = Mode::Times(1 + rng.below(10) as u32);
    slow.commands = vec!["ping".to_owned()];
    slow.block = Some(Duration::from_millis(1_000 + rng.below(8_000)));
    // Setting a fail point on a running member cannot fail.
    let _ = sim.apply(&Action::FailPoint(primary.into(), Some(slow)));
}

fn draw_latency(rng: &mut Rng) -> Latency {
    let min = Duration::from_micros([100, 500, 2_000, 10_000, 40_000][rng.below(5) as usize]);
    let spread = min * rng.below(3) as u32 / 2;
    Latency { min, spread, chunked: false }
}

/// Runs operations one after another. The server takes several seconds for some of them.
async fn operate(topology: Topology, clock: Arc<dyn sdam_transport::clock::Clock>, mut rng: Rng) {
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    let limit = Some(Duration::from_secs(20));
    loop {
        clock.sleep_until(clock.now() + Duration::from_millis(rng.below(300))).await;
        let Ok(server) = topology.select(&Criteria::write()).await else {
            if topology.snapshot().is_closed() {
                return;
            }
            continue;
        };
        if let Ok(mut connection) = server.pool().check_out().await {
            let _ = connection.run_command(ping.as_bytes(), limit).await;
        }
    }
}
