//! The bundles of seams that an engine is given.

use std::sync::Arc;

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
