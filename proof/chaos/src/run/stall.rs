//! Stalls of the client's host during a run.

use std::time::Duration;

use sdam_core::rng::Rng;
use sdam_sim::runtime::Sim;

use crate::{
    plan::{Plan, pick},
    record::{RunRecord, lock},
};

/// The maximum time from the end of a stall to the next one.
const BETWEEN: u64 = 8_000;
/// The maximum durations of stalls: a slow host, a long pause for garbage collection, and a virtual
/// machine that is moved.
const DURATIONS: [u64; 3] = [300, 3_000, 12_000];

/// Stalls the host again and again while there are faults, if the plan requires it.
pub(super) async fn stall(plan: &Plan, sim: &Sim, record: &RunRecord) {
    if !plan.stalls {
        return;
    }
    let clock = sim.clock();
    let until = clock.now() + plan.scenario.duration();
    let mut rng = Rng::new(plan.seed ^ 0x57A1_57A1).fork();
    loop {
        let pause = Duration::from_millis(1 + rng.below(BETWEEN));
        let end = lock(&record.stalls).end();
        clock.sleep_until(clock.now().max(end) + pause).await;
        let begin = clock.now();
        let max = pick(&mut rng, &DURATIONS);
        let duration = Duration::from_millis(1 + rng.below(max));
        if begin + duration > until {
            return;
        }
        record.note(format!("the host stalls for {duration:?}"));
        lock(&record.counts).stalls += 1;
        lock(&record.stalls).add(begin..begin + duration);
        sim.stall(duration);
    }
}
