//! Minimization of failing plans.

use sdam_sim::{oracle::Oracle, scenario::Scenario};

use crate::{
    plan::{Access, Plan},
    run::{Failure, run},
};

/// The maximum number of runs for minimizing a plan.
const BUDGET: u32 = 400;

/// Returns a plan with as few faults as possible that violates the same invariant as `plan`, and
/// its failure.
///
/// Steps are removed in halves, quarters and so on, as long as the invariant is still violated.
pub fn shrink(plan: &Plan, failure: Box<Failure>) -> (Plan, Box<Failure>) {
    let mut shrinker =
        Shrinker { oracle: failure.violation.oracle, plan: plan.clone(), failure, budget: BUDGET };
    let mut calm = plan.clone();
    calm.disturbance = None;
    shrinker.accept(calm);
    let mut idle = shrinker.plan.clone();
    idle.load = false;
    shrinker.accept(idle);
    // SRV records are kept, because some faults prevent only clients without SRV records from
    // recovering.
    if !plan.access.srv {
        let mut direct = shrinker.plan.clone();
        direct.access = Access::PLAIN;
        shrinker.accept(direct);
    }
    let mut chunk = plan.scenario.steps.len().max(1);
    loop {
        let mut at = 0;
        while at < shrinker.plan.scenario.steps.len() {
            if !shrinker.without(at, chunk) {
                at += chunk;
            }
        }
        if chunk == 1 || shrinker.budget == 0 {
            return (shrinker.plan, shrinker.failure);
        }
        chunk = chunk.div_ceil(2);
    }
}

struct Shrinker {
    oracle: Oracle,
    plan: Plan,
    failure: Box<Failure>,
    budget: u32,
}

impl Shrinker {
    /// Removes `count` steps, starting at `at`, if the plan still fails without them. Returns
    /// whether the steps were removed.
    fn without(&mut self, at: usize, count: usize) -> bool {
        let mut steps = self.plan.scenario.steps.clone();
        steps.drain(at..(at + count).min(steps.len()));
        let plan = self.plan.with_scenario(Scenario { steps });
        self.accept(plan)
    }

    fn accept(&mut self, plan: Plan) -> bool {
        let Some(left) = self.budget.checked_sub(1) else {
            return false;
        };
        self.budget = left;
        match run(&plan) {
            Err(failure) if failure.violation.oracle == self.oracle => {
                self.plan = plan;
                self.failure = failure;
                true
            }
            _ => false,
        }
    }
}
