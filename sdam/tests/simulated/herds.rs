//! Tests many clients that start at the same time, or whose servers limit the rate of new
//! connections.

use sdam_sim::runtime::{DialLimit, Traffic};

use super::*;

const CLIENTS: u32 = 100;

/// The time in which a server accepts three connections from each client.
const TURN: Duration = Duration::from_secs(10);

fn start(sim: &Sim, spread: Duration) -> Vec<Topology<Pool>> {
    let start = |_| {
        let mut options = Options::parse(&format!("{}&minPoolSize=1", sim.uri())).unwrap();
        options.spread = spread;
        TopologyBuilder::new(options).pools(Pools::new()).start(sim.runtime()).unwrap()
    };
    (0..CLIENTS).map(start).collect()
}

fn limit(sim: &Sim) {
    let rate = 3 * CLIENTS / TURN.as_secs() as u32;
    sim.network().limit_dials(Some(DialLimit { rate, burst: rate / 10, queue: rate }));
}

/// Restarts a secondary while the clients run. Returns the traffic until all servers are available
/// again.
fn restart(spread: Duration) -> Traffic {
    let sim = simulation(1);
    sim.block_on(async {
        let topologies = start(&sim, spread);
        sim.run_for(Duration::from_secs(60));
        limit(&sim);
        let before = sim.network().traffic();
        let primary = sim.status().primary().unwrap().id;
        let member = (0..3).map(MemberId).find(|member| *member != primary).unwrap();
        sim.kill(member).unwrap();
        sim.run_for(Duration::from_secs(5));
        sim.restart(member).unwrap();
        sim.run_for(Duration::from_secs(90));
        for topology in &topologies {
            let snapshot = topology.snapshot();
            let mut servers = snapshot.description().servers().iter();
            assert!(servers.all(|server| server.server_type.is_available()));
        }
        for topology in topologies {
            topology.close().await;
        }
        let mut traffic = sim.network().traffic();
        traffic.direct -= before.direct;
        traffic.refused -= before.refused;
        traffic
    })
}

#[test]
fn a_server_that_restarts_refuses_hardly_any_connection_of_clients_that_spread_theirs() {
    let (together, spread) = (restart(Duration::ZERO), restart(TURN));
    assert!(spread.refused * 20 <= spread.direct, "{spread:?}");
    assert!(together.refused > 5 * spread.refused, "{together:?} {spread:?}");
    // In both cases, each client opens at least three connections: for checks, for round-trip times
    // and for its pool.
    assert!(spread.direct >= u64::from(3 * CLIENTS) && together.direct > spread.direct);
}

#[test]
fn no_selection_and_no_check_out_waits_for_the_spread() {
    for seed in 0..20 {
        let sim = simulation(seed);
        sim.block_on(async {
            let spread = Duration::from_secs(1000);
            let topologies = start(&sim, spread);
            let topology = &topologies[0];
            let began = sim.now();
            let primary = topology.select(&Criteria::write()).await.unwrap();
            drop(primary.pool().check_out().await.unwrap());
            assert!(sim.now().since(began) < Duration::from_millis(10), "at the start");
            sim.run_for(Duration::from_secs(2));
            let member = sim.status().primary().unwrap().id;
            sim.kill(member).unwrap();
            // After these 30 s, the next regular check of the killed primary is still far away.
            sim.run_for(Duration::from_secs(30));
            sim.restart(member).unwrap();
            sim.run_for(Duration::from_secs(5));
            let began = sim.now();
            topology.select(&Criteria::write()).await.unwrap();
            let nearest = Criteria::read(sdam::ReadPreference::default()).unwrap();
            topology.select(&nearest).await.unwrap();
            let waited = sim.now().since(began);
            assert!(waited < Duration::from_millis(600), "{waited:?}");
            for topology in topologies {
                topology.close().await;
            }
        });
    }
}

#[test]
fn the_first_checks_of_many_topologies_are_spread() {
    let sim = simulation(1);
    sim.block_on(async {
        let start = |_| {
            let builder = Topology::builder(&sim.uri()).unwrap();
            let builder = builder.options(|options| options.spread = TURN);
            builder.start(sim.runtime()).unwrap()
        };
        let topologies: Vec<_> = (0..CLIENTS).map(start).collect();
        let mut connected = Vec::new();
        for _ in 0..10 {
            sim.run_for(TURN / 10);
            connected.push(sim.connections());
        }
        for topology in &topologies {
            assert!(complete(&topology.snapshot()).is_some());
        }
        // Each topology opens three connections for checks, and three for measurements of
        // round-trip times.
        for (second, pair) in [0].iter().chain(&connected).zip(&connected).enumerate() {
            let new = pair.1 - pair.0;
            assert!((20..100).contains(&new), "{new} connections in second {second}");
        }
        for topology in &topologies {
            topology.close().await;
        }
    });
}

#[test]
fn look_ups_and_servers_that_do_not_answer_delay_no_other_deployment_and_no_end() {
    let sim = simulation(1);
    sim.dns().set_fault("unknown", Some(DnsFault::Silence));
    sim.dns().set_fault("slow", Some(DnsFault::Slow(Duration::from_secs(5))));
    sim.network().blackhole(MemberId(2), true);
    sim.block_on(async {
        let open = |uri: &str| Topology::builder(uri).unwrap().start(sim.runtime()).unwrap();
        let dead = ["mongodb://unknown", "mongodb://slow", "mongodb://nowhere", "mongodb://c"];
        let dead: Vec<_> = dead.iter().map(|uri| open(uri)).collect();
        let alive = open(&sim.uri());
        alive.select(&Criteria::write()).await.unwrap();
        assert!(sim.now().as_nanos() < 10_000_000, "{:?}", sim.now());
        let before = sim.now();
        for topology in dead.iter().chain([&alive]) {
            topology.close().await;
        }
        assert_eq!(sim.now(), before, "closing waits for no look-up and no server");
    });
    assert_eq!((sim.connections(), sim.tasks()), (0, 0));
}
