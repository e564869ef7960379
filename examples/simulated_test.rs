//! Tests a program during an outage, in virtual time. Each run is reproducible from its seed.
//!
//! Run it with `cargo run -p sdam-examples --example simulated_test [SEED]`, or with
//! `cargo test -p sdam-examples --example simulated_test`. `sdam::sim::cookbook` has more such
//! tests.

use std::{env, error::Error, time::Duration};

use sdam::{
    Criteria, ServerAddress, Topology,
    sim::{Blueprint, Sim, action::Target},
};

/// The results of a run with one seed.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    killed: ServerAddress,
    selected: ServerAddress,
    /// The virtual time for which the selection waited.
    waited: Duration,
    /// The hash of all events of the run.
    trace: u64,
}

/// Kills the primary of a replica set, and selects its successor.
fn outage(seed: u64) -> Result<Outcome, Box<dyn Error>> {
    let sim = Sim::new(seed, &Blueprint::replica_set(3));
    sim.block_on(async {
        // A program under test should take its runtime as an argument, as `start` does here.
        let topology = Topology::builder(&sim.uri())?.start(sim.runtime())?;
        let killed = topology.select(&Criteria::write()).await?.address().clone();

        sim.kill(Target::Primary)?;
        let lost = topology.wait_for(
            |snapshot| snapshot.description().primary().is_none().then_some(()),
            Duration::from_secs(60),
        );
        lost.await.ok_or("the loss was not noticed")?;

        let start = sim.now();
        let selected = topology.select(&Criteria::write()).await?.address().clone();
        let waited = sim.now().since(start);
        topology.close().await;
        let left = (sim.tasks(), sim.connections());
        assert_eq!(left, (0, 0), "seed {seed}");
        Ok(Outcome { killed, selected, waited, trace: sim.trace() })
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let seed = env::args().nth(1).map_or(Ok(42), |seed| seed.parse())?;
    let start = std::time::Instant::now();
    let outcome = outage(seed)?;
    let real = start.elapsed();
    println!("seed {seed}, {real:.1?} of real time: {outcome:#?}");
    Ok(())
}

#[test]
fn the_selection_waits_for_the_election_with_every_seed() -> Result<(), Box<dyn Error>> {
    for seed in 0..20 {
        let outcome = outage(seed)?;
        assert_ne!(outcome.selected, outcome.killed, "seed {seed}");
        // The members wait 10 s before they elect another primary.
        assert!(outcome.waited > Duration::from_secs(5), "{outcome:?}");
        assert!(outcome.waited < Duration::from_secs(30), "{outcome:?}");
    }
    Ok(())
}

#[test]
fn the_same_seed_reproduces_the_run() -> Result<(), Box<dyn Error>> {
    assert_eq!(outage(7)?, outage(7)?);
    Ok(())
}
