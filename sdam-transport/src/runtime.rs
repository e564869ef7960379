//! The bundles of seams that an engine is given.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sdam_core::rng::mix;

use crate::{clock::Clock, connect::Transport, resolve::Resolver, spawn::Spawner};

/// Everything single-threaded mode needs of the world.
///
/// Each part is a value and can be replaced alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Io {
    /// Tells the time and wakes at deadlines.
    pub clock: Arc<dyn Clock>,
    /// Opens connections.
    pub transport: Arc<dyn Transport>,
    /// Looks up seed lists; without one, `mongodb+srv` is a configuration error.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// The root of every random choice.
    pub seed: u64,
    /// How many topologies have been started with this bundle and its clones.
    topologies: Arc<AtomicU64>,
}

impl Io {
    /// The bundle of these parts, without a resolver.
    ///
    /// Equal seeds make equal choices, so `seed` comes from the operating system's entropy unless a
    /// run is to be repeated.
    pub fn new(clock: Arc<dyn Clock>, transport: Arc<dyn Transport>, seed: u64) -> Self {
        Self {
            clock,
            transport,
            resolver: None,
            seed,
            topologies: Arc::default(),
        }
    }

    /// The seed of one more topology: [`seed`](Self::seed) for the first one that is started with
    /// this bundle or a clone of it, and another one for each that follows, so that no two of them
    /// have the same id or make the same choices.
    pub fn next_seed(&self) -> u64 {
        match self.topologies.fetch_add(1, Ordering::Relaxed) {
            0 => self.seed,
            number => mix(self.seed.wrapping_add(number)),
        }
    }

    /// The same bundle with `resolver`.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = Some(resolver);
        self
    }
}

/// Everything the engine needs of the world: [`Io`] and a way to start tasks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Runtime {
    /// Time, connections, look-ups and the seed.
    pub io: Io,
    /// Starts monitors.
    pub spawner: Arc<dyn Spawner>,
}

impl Runtime {
    /// The bundle of these parts.
    pub fn new(io: Io, spawner: Arc<dyn Spawner>) -> Self {
        Self { io, spawner }
    }
}
