//! Tests of disturbed simulations.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use sdam::{Criteria, Topology};
use sdam_core::address::ServerAddress;
use sdam_sim::{
    Blueprint,
    config::SetConfig,
    runtime::{Disturbance, Sim},
};
use sdam_transport::spawn::{Task, yield_now};

fn sim() -> Sim {
    let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
    Sim::new(1, &Blueprint::replica_set(SetConfig::new("rs", hosts)))
}

/// Runs a client in a disturbed simulation. Returns the trace and the disturbances.
fn disturbed(seed: u64) -> (u64, Vec<Disturbance>) {
    let sim = sim();
    sim.disturb(seed);
    sim.block_on(async {
        let topology = Topology::builder(&sim.uri()).unwrap().start(sim.runtime()).unwrap();
        for _ in 0..3 {
            topology.select(&Criteria::write()).await.unwrap();
            sim.clock().sleep_until(sim.now() + Duration::from_secs(20)).await;
        }
        topology.close().await;
    });
    assert_eq!((sim.tasks(), sim.connections(), sim.timers()), (0, 0, 0));
    (sim.trace(), sim.disturbances())
}

#[test]
fn disturbed_runs_are_reproducible_and_differ_by_seed() {
    let runs: Vec<_> = (0..40).map(disturbed).collect();
    assert_eq!(runs, (0..40).map(disturbed).collect::<Vec<_>>());
    let traces: BTreeSet<_> = runs.iter().map(|(trace, _)| trace).collect();
    assert!(traces.len() > 35, "{} traces from 40 seeds", traces.len());
    let seen: BTreeSet<_> = runs.into_iter().flat_map(|(_, disturbances)| disturbances).collect();
    assert_eq!(Vec::from_iter(seen), Disturbance::ALL);
}

#[test]
fn a_simulation_is_calm_unless_it_is_disturbed() {
    let sim = sim();
    sim.run_for(Duration::from_secs(60));
    assert_eq!(sim.disturbances(), []);
}

#[test]
fn disturbed_timers_are_late_but_never_early_and_those_of_the_test_are_punctual() {
    let mut latest = Duration::ZERO;
    for seed in 0..100 {
        let sim = sim();
        sim.disturb(seed);
        let program = sim.runtime().backend.clock;
        for _ in 0..20 {
            let deadline = sim.now() + Duration::from_secs(1);
            sim.block_on(program.sleep_until(deadline));
            let late = sim.now().since(deadline);
            assert!(sim.now() >= deadline && late <= Disturbance::MAX_LATENESS, "{late:?}");
            latest = latest.max(late);
            // A deadline in the past is ready at the first poll.
            assert!(program.sleep_until(deadline).now_or_never().is_some());
            let deadline = sim.now() + Duration::from_secs(1);
            sim.block_on(sim.clock().sleep_until(deadline));
            assert_eq!(sim.now(), deadline);
        }
    }
    assert!(latest > Disturbance::MAX_LATENESS / 2, "{latest:?}");
}

#[test]
fn a_task_that_waits_for_another_one_ends_in_a_disturbed_simulation() {
    for seed in 0..50 {
        let sim = sim();
        sim.disturb(seed);
        let is_done = Arc::<AtomicBool>::default();
        let done = Arc::clone(&is_done);
        let work = async move { done.store(true, Ordering::SeqCst) };
        sim.runtime().spawner.spawn(Task::new("test", work));
        sim.block_on(async {
            while !is_done.load(Ordering::SeqCst) {
                yield_now().await;
            }
        });
    }
}
