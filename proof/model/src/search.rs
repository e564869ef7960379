//! A breadth-first search of all states. It finds a violation of an invariant with the shortest
//! possible history.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{start::Start, step::Step, world::World};

/// The number of states that a thread takes from the queue at a time.
const CHUNK: usize = 256;

/// The number of states and steps that a search visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// The number of states.
    pub states: usize,
    /// The number of steps that were taken.
    pub steps: u64,
    /// The greatest number of steps from the start to a state.
    pub depth: usize,
    /// True if all reachable states were searched.
    pub complete: bool,
}

/// A history that violates an invariant.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The steps, in order.
    pub history: Vec<Step>,
    /// The violated invariant.
    pub invariant: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.invariant)?;
        self.history.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}

impl std::error::Error for Counterexample {}

/// A state. It is stored as the number of its predecessor and the step that leads from there to
/// this state.
///
/// The deployments of all states, of which there are millions, would need many gigabytes. They are
/// therefore not stored, but rebuilt from their steps. The states of a layer are in the same order
/// as their predecessors, so each state is rebuilt at most once for each later layer.
#[derive(Clone, Copy)]
struct Reached {
    parent: u32,
    step: u16,
}

struct Search<'a> {
    start: World,
    alphabet: &'a [Step],
    reached: Vec<Reached>,
    /// The keys of all known states, shared by the threads.
    known: Mutex<HashSet<u128>>,
    max_states: usize,
}

/// The states that a thread has found, keyed by the chunk of their predecessors.
#[derive(Default)]
struct Found {
    chunks: Vec<(usize, Vec<Reached>)>,
    steps: u64,
    stopped: bool,
}

/// Takes every step of `alphabet` in every reachable state, until `max_states` states are known.
///
/// # Errors
///
/// Returns a shortest history that violates an invariant.
pub fn search(
    start: Start,
    alphabet: &[Step],
    max_states: usize,
) -> Result<Visited, Counterexample> {
    let start =
        World::new(start).map_err(|invariant| Counterexample { history: Vec::new(), invariant })?;
    let known = Mutex::new(HashSet::from([start.key()]));
    let mut search = Search {
        start,
        alphabet,
        reached: vec![Reached { parent: 0, step: 0 }],
        known,
        max_states,
    };
    let mut visited = Visited::default();
    let mut layer = 0..1;
    while !layer.is_empty() && !visited.complete {
        let found = search.expand(layer.clone())?;
        let stopped = found.iter().any(|found| found.stopped);
        visited.steps += found.iter().map(|found| found.steps).sum::<u64>();
        let mut chunks: Vec<_> = found.into_iter().flat_map(|found| found.chunks).collect();
        chunks.sort_by_key(|(chunk, _)| *chunk);
        let end = search.reached.len();
        search.reached.extend(chunks.into_iter().flat_map(|(_, reached)| reached));
        visited.states = search.reached.len();
        if stopped {
            return Ok(visited);
        }
        layer = end..search.reached.len();
        visited.depth += usize::from(!layer.is_empty());
    }
    visited.complete = true;
    Ok(visited)
}

impl Search<'_> {
    fn known(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes every step in every state of a layer, in parallel on all processors.
    fn expand(&self, layer: std::ops::Range<usize>) -> Result<Vec<Found>, Counterexample> {
        let next = AtomicUsize::new(layer.start);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut found = Found::default();
            let mut path = Path::new(self);
            loop {
                let chunk = next.fetch_add(CHUNK, Ordering::Relaxed);
                if chunk >= layer.end {
                    return Ok(found);
                }
                let mut reached = Vec::new();
                for state in chunk..layer.end.min(chunk + CHUNK) {
                    if self.known().len() >= self.max_states {
                        found.stopped = true;
                        break;
                    }
                    let world = path.go_to(state);
                    found.steps += self.take_steps(state, world, &mut reached)?;
                }
                found.chunks.push((chunk, reached));
                if found.stopped {
                    next.store(layer.end, Ordering::Relaxed);
                }
            }
        };
        // If there are only a few states, it does not pay off to start threads.
        if layer.len() <= CHUNK {
            return Ok(vec![work()?]);
        }
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let results = results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.collect()
    }

    fn take_steps(
        &self,
        state: usize,
        world: &World,
        reached: &mut Vec<Reached>,
    ) -> Result<u64, Counterexample> {
        let mut steps = 0;
        for (number, &step) in self.alphabet.iter().enumerate() {
            if !world.can(step) {
                continue;
            }
            steps += 1;
            let mut next = world.clone();
            next.apply(step).map_err(|invariant| {
                let mut history = self.history(state);
                history.push(step);
                Counterexample { history, invariant }
            })?;
            let key = next.key();
            if self.known().insert(key) {
                reached.push(Reached {
                    parent: u32::try_from(state).unwrap_or(u32::MAX),
                    step: u16::try_from(number).unwrap_or(u16::MAX),
                });
            }
        }
        world
            .clone()
            .close()
            .map_err(|invariant| Counterexample { history: self.history(state), invariant })?;
        Ok(steps)
    }

    fn before(&self, state: usize) -> (usize, Step) {
        let Reached { parent, step } = self.reached[state];
        (parent as usize, self.alphabet[usize::from(step)])
    }

    fn history(&self, mut state: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        while state > 0 {
            let (parent, step) = self.before(state);
            steps.push(step);
            state = parent;
        }
        steps.reverse();
        steps
    }
}

/// The deployments on the path to a state.
struct Path<'s> {
    search: &'s Search<'s>,
    worlds: Vec<(usize, World)>,
}

impl<'s> Path<'s> {
    fn new(search: &'s Search<'s>) -> Self {
        Self { search, worlds: Vec::new() }
    }

    /// Rebuilds the deployment of `state`, beginning with the last deployment that the paths to
    /// this state and to the current one have in common.
    fn go_to(&mut self, mut state: usize) -> &World {
        let mut steps = Vec::new();
        loop {
            // The number of a state is always greater than the numbers of its predecessors.
            while self.last().0 > state {
                self.worlds.pop();
            }
            if self.last().0 == state {
                break;
            }
            let (parent, step) = self.search.before(state);
            steps.push((state, step));
            state = parent;
        }
        for (state, step) in steps.into_iter().rev() {
            let mut world = self.last().1.clone();
            let applied = world.apply(step);
            assert_eq!(applied, Ok(true), "the step could be taken before");
            self.worlds.push((state, world));
        }
        self.last().1
    }

    fn last(&self) -> (usize, &World) {
        let last = self.worlds.last();
        last.map_or((0, &self.search.start), |(state, world)| (*state, world))
    }
}
