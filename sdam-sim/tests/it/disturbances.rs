//! Tests of disturbed simulations. The runs with seeds show that every disturbance occurs, and that
//! disturbed runs are reproducible.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
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
