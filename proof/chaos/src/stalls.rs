//! Stalls of the client's host, during which none of its tasks run.

use std::{ops::Range, sync::Mutex, time::Duration};

use sdam_core::{rng::Rng, time::Instant};
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

/// The stalls so far, in order.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<Vec<Range<Instant>>>);

impl Stalls {
    /// Returns the time at which a timer that is due at `due` fires.
    pub(crate) fn fires(&self, due: Instant) -> Instant {
        let stalls = lock(&self.0);
        let during = stalls.iter().find(|stall| stall.contains(&due));
        during.map_or(due, |stall| stall.end)
    }

    /// Returns for how long the host stalled between `from` and `to`.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Duration {
        lock(&self.0).iter().map(|stall| stall.end.min(to).since(stall.start.max(from))).sum()
    }

    /// Returns whether a stall ended at this time.
    pub(crate) fn end_at(&self, at: Instant) -> bool {
        lock(&self.0).iter().any(|stall| stall.end == at)
    }

    /// Returns the end of the last stall.
    pub(crate) fn end(&self) -> Instant {
        lock(&self.0).last().map_or(Instant::EPOCH, |stall| stall.end)
    }
}

/// Stalls the host again and again while there are faults, if the plan requires it.
pub(crate) async fn stall(plan: &Plan, sim: &Sim, record: &RunRecord) {
    if !plan.stalls {
        return;
    }
    let clock = sim.runtime().backend.clock;
    let until = clock.now() + plan.scenario.duration();
    let mut rng = Rng::new(plan.seed ^ 0x57A1_57A1).fork();
    loop {
        let pause = Duration::from_millis(1 + rng.below(BETWEEN));
        clock.sleep_until(clock.now().max(record.stalls.end()) + pause).await;
        let begin = clock.now();
        let max = pick(&mut rng, &DURATIONS);
        let duration = Duration::from_millis(1 + rng.below(max));
        if begin + duration > until {
            return;
        }
        record.note(format!("the host stalls for {duration:?}"));
        lock(&record.counts).stalls += 1;
        lock(&record.stalls.0).push(begin..begin + duration);
        sim.stall(duration);
    }
}
