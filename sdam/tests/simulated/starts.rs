//! Tests topologies that start at the same time.

use std::time::Duration;

use sdam::{Criteria, Topology};
use sdam_sim::{
    MemberId,
    runtime::{DnsFault, Sim},
};

use crate::{complete, simulation};

const SPREAD: Duration = Duration::from_secs(10);

fn start(sim: &Sim) -> Topology {
    let builder = Topology::builder(&sim.uri()).unwrap();
    let builder = builder.options(|options| options.spread = SPREAD);
    builder.start(sim.runtime()).unwrap()
}

#[test]
fn the_first_checks_of_many_topologies_are_spread() {
    let sim = simulation(1);
    sim.block_on(async {
        let topologies: Vec<_> = (0..100).map(|_| start(&sim)).collect();
        let mut connected = Vec::new();
        for _ in 0..10 {
            sim.run_for(SPREAD / 10);
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
