//! Tests of virtual time, the order of tasks, and reproducibility.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sdam_transport::spawn::Task;

use super::*;

fn sim(seed: u64) -> Sim {
    Sim::new(seed, &Blueprint::replica_set(3))
}

/// Returns the order in which eight tasks that are ready at the same time are polled.
fn order(seed: u64) -> (Vec<u32>, u64) {
    let sim = sim(seed);
    let order = Arc::<Mutex<Vec<u32>>>::default();
    for task in 0..8 {
        let order = Arc::clone(&order);
        let work = async move { order.lock().unwrap().push(task) };
        sim.runtime().spawner.spawn(Task::new("test", work));
    }
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.tasks(), 0);
    (order.lock().unwrap().clone(), sim.trace())
}

#[test]
fn equal_seeds_yield_equal_task_orders_and_other_seeds_others() {
    assert_eq!(order(7), order(7));
    let mut orders: Vec<_> = (0..50).map(|seed| order(seed).0).collect();
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 45, "{} orders from 50 seeds", orders.len());
}

#[test]
fn time_jumps_to_the_next_timer_and_dropped_timers_are_forgotten() {
    let sim = sim(1);
    let clock = sim.runtime().backend.clock;
    let day = Duration::from_secs(86_400);
    let (long, short) =
        (clock.sleep_until(Instant::EPOCH + 100 * day), clock.sleep_until(Instant::EPOCH + day));
    let either = futures::future::select(long, short);
    assert!(matches!(sim.block_on(either), futures::future::Either::Right(_)));
    assert_eq!(sim.now(), Instant::EPOCH + day);
    assert_eq!(sim.timers(), 0);
}

#[test]
#[should_panic(expected = "deadlock at")]
fn a_deadlock_panics() {
    sim(1).block_on(std::future::pending::<()>());
}

#[test]
fn while_the_program_is_stalled_time_passes_and_no_task_runs() {
    let sim = sim(1);
    let clock = sim.runtime().backend.clock;
    let (began, woken) = (sim.now(), Arc::<Mutex<Vec<Duration>>>::default());
    for seconds in [1, 7] {
        let (clock, woken) = (Arc::clone(&clock), Arc::clone(&woken));
        sim.runtime().spawner.spawn(Task::new("test", async move {
            clock.sleep_until(began + Duration::from_secs(seconds)).await;
            woken.lock().unwrap().push(clock.now().since(began));
        }));
    }
    sim.stall(Duration::from_secs(5));
    // A stall has no effect if it ends before the current one.
    sim.stall(Duration::from_secs(2));
    sim.run_for(Duration::from_secs(8));
    let seconds = [5, 7].map(Duration::from_secs);
    assert_eq!(*woken.lock().unwrap(), seconds);
}
