//! The bundles of clock, transport, resolver and spawner that an engine gets.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sdam_core::rng::mix;

use crate::{
    clock::Clock, connect::Transport, resolve::Resolver, spawn::Spawner, tls::TlsProvider,
};

/// The clock, transport, resolver, TLS library and random seed, which is all that single-threaded mode needs.
///
/// Each part is a value and can be replaced alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Io {
    /// The clock and its timers.
    pub clock: Arc<dyn Clock>,
    /// Opens connections.
    pub transport: Arc<dyn Transport>,
    /// Looks up SRV seed lists; without one, `mongodb+srv` is a configuration error.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// Negotiates TLS over the transport's streams; without one, options that ask for TLS are a
    /// configuration error, unless the transport [negotiates it itself](Transport::guards).
    pub tls: Option<Arc<dyn TlsProvider>>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of topologies started with this bundle and its clones.
    topologies: Arc<AtomicU64>,
}

impl Io {
    /// Creates a bundle of these parts, without a resolver and without TLS.
    ///
    /// Equal seeds make equal choices, so take `seed` from the operating system's entropy unless a
    /// run has to be reproducible.
    pub fn new(clock: Arc<dyn Clock>, transport: Arc<dyn Transport>, seed: u64) -> Self {
        Self {
            clock,
            transport,
            resolver: None,
            tls: None,
            seed,
            topologies: Arc::default(),
        }
    }

    /// Returns the seed of one more topology: [`seed`](Self::seed) for the first one that is
    /// started with this bundle or a clone of it, and a different one for each later topology, so
    /// that no two have the same id or make the same choices.
    pub fn next_seed(&self) -> u64 {
        match self.topologies.fetch_add(1, Ordering::Relaxed) {
            0 => self.seed,
            number => mix(self.seed.wrapping_add(number)),
        }
    }

    /// Sets the resolver.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// Sets the TLS library.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<dyn TlsProvider>) -> Self {
        self.tls = Some(tls);
        self
    }
}

/// The parts that the engine needs: [`Io`] and a spawner.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Runtime {
    /// Clock, transport, resolver and seed.
    pub io: Io,
    /// Starts the tasks of monitors.
    pub spawner: Arc<dyn Spawner>,
}

impl Runtime {
    /// Creates a bundle of these parts.
    pub fn new(io: Io, spawner: Arc<dyn Spawner>) -> Self {
        Self { io, spawner }
    }
}
