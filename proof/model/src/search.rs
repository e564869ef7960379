//! The search of all states, breadth first, so that a history that breaks an invariant is
//! shortest.

use std::{collections::HashSet, fmt};

use crate::{
    checked::{CheckedMachine, Start},
    step::Step,
};

/// The statistics of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// The number of states.
    pub states: usize,
    /// The number of steps that were taken.
    pub steps: u64,
    /// The distance of the farthest state from the start, in steps.
    pub depth: usize,
    /// True if all reachable states were searched.
    pub complete: bool,
}

/// A history that breaks an invariant.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The steps, in order.
    pub history: Vec<Step>,
    /// The invariant.
    pub invariant: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.invariant)?;
        self.history
            .iter()
            .try_for_each(|step| writeln!(f, "  {step}"))
    }
}

impl std::error::Error for Counterexample {}

/// A state, and the steps that lead to it.
struct Reached {
    parent: usize,
    step: Option<Step>,
}

/// Takes every step of `alphabet` in every reachable state, until `max_states` states are known.
///
/// # Errors
///
/// A shortest history that breaks an invariant.
pub fn search(
    start: Start,
    alphabet: &[Step],
    max_states: usize,
) -> Result<Visited, Counterexample> {
    let counterexample = |invariant, history| Counterexample { history, invariant };
    let first =
        CheckedMachine::new(start).map_err(|invariant| counterexample(invariant, Vec::new()))?;
    let mut known = HashSet::from([first.key()]);
    let mut reached = vec![Reached {
        parent: 0,
        step: None,
    }];
    let mut visited = Visited {
        states: 1,
        complete: true,
        ..Visited::default()
    };
    let mut frontier = vec![(0, first)];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (index, machine) in frontier {
            for &step in alphabet {
                visited.steps += 1;
                let mut next_machine = machine.clone();
                let applied = next_machine.apply(step);
                let changed = applied.map_err(|invariant| {
                    let mut history = history(&reached, index);
                    history.push(step);
                    counterexample(invariant, history)
                })?;
                if !changed || !known.insert(next_machine.key()) {
                    continue;
                }
                reached.push(Reached {
                    parent: index,
                    step: Some(step),
                });
                next.push((reached.len() - 1, next_machine));
            }
            machine
                .close()
                .map_err(|invariant| counterexample(invariant, history(&reached, index)))?;
            if reached.len() >= max_states {
                visited.complete = false;
                break;
            }
        }
        visited.states = reached.len();
        if !visited.complete {
            break;
        }
        visited.depth += usize::from(!next.is_empty());
        frontier = next;
    }
    Ok(visited)
}

fn history(reached: &[Reached], mut index: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(Reached {
        parent,
        step: Some(step),
    }) = reached.get(index)
    {
        steps.push(*step);
        index = *parent;
    }
    steps.reverse();
    steps
}
