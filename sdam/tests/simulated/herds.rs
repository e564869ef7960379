//! Tests many clients whose servers limit the rate of new connections.

use std::time::Duration;

use sdam::{Criteria, Options, Topology, TopologyBuilder};
use sdam_pool::{Pool, Pools};
use sdam_sim::{
    MemberId,
    runtime::{DialLimit, Sim, Traffic},
};

use crate::simulation;

const CLIENTS: u32 = 100;

/// The time in which a server accepts three connections from each client.
const TURN: Duration = Duration::from_secs(10);

fn start(sim: &Sim, spread: Duration) -> Vec<Topology<Pool>> {
    let start = |_| {
        let mut options = Options::parse(&format!("{}&minPoolSize=1", sim.uri())).unwrap();
        options.spread = spread;
        let pools = Pools::new();
        TopologyBuilder::new(options).pools(pools).start(sim.runtime()).unwrap()
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
