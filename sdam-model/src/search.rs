//! The search of all states, breadth first, so that a history that breaks an invariant is
//! shortest.

use std::{collections::HashSet, fmt};

use crate::{
    step::Step,
    world::{Start, World},
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
    /// Whether all reachable states were searched.
    pub complete: bool,
}

/// A history that breaks an invariant.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The steps, in order.
    pub history: Vec<Step>,
    /// The invariant.
    pub invariant: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.invariant)?;
        self.history
            .iter()
            .try_for_each(|step| writeln!(f, "  {step}"))
    }
}

impl std::error::Error for Broken {}

/// A state, and the steps that lead to it.
struct Reached {
    parent: usize,
    step: Option<Step>,
}

/// Takes every step of `alphabet` in every reachable state, until `most` states are known.
///
/// # Errors
///
/// A shortest history that breaks an invariant.
pub fn search(start: Start, alphabet: &[Step], most: usize) -> Result<Visited, Broken> {
    let broken = |invariant, history| Broken { history, invariant };
    let first = World::new(start).map_err(|invariant| broken(invariant, Vec::new()))?;
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
        for (index, world) in frontier {
            for &step in alphabet {
                visited.steps += 1;
                let mut after = world.clone();
                let taken = after.take(step);
                let changed = taken.map_err(|invariant| {
                    let mut history = history(&reached, index);
                    history.push(step);
                    broken(invariant, history)
                })?;
                if !changed || !known.insert(after.key()) {
                    continue;
                }
                reached.push(Reached {
                    parent: index,
                    step: Some(step),
                });
                next.push((reached.len() - 1, after));
            }
            world
                .close()
                .map_err(|invariant| broken(invariant, history(&reached, index)))?;
            if reached.len() >= most {
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
