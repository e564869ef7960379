//! The bundles of a clock, a transport, a resolver, entropy and a spawner that an engine gets.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sdam_core::rng::mix;

use crate::{
    clock::Clock,
    connect::Transport,
    dial::Dial,
    entropy::{Entropy, SystemEntropy},
    net::NetTransport,
    resolve::Resolver,
    spawn::Spawner,
    tls::TlsProvider,
};

/// The clock, transport, resolver, TLS library, entropy and random seed: everything that
/// single-threaded mode needs.
///
/// Each part is a value and can be replaced separately.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Backend {
    /// The clock and its timers. The transport must use the same clock, because the transport's
    /// deadlines are times of this clock; [`of_sockets`](Self::of_sockets) ensures this.
    pub clock: Arc<dyn Clock>,
    /// Opens connections.
    pub transport: Arc<dyn Transport>,
    /// Looks up SRV seed lists. Without a resolver, `mongodb+srv` is a configuration error.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// Negotiates TLS over the transport's streams. Without a TLS library, options that require TLS
    /// are a configuration error, unless the transport [negotiates TLS itself](Transport::guards).
    pub tls: Option<Arc<dyn TlsProvider>>,
    /// The source of unique identifiers of topologies and sessions.
    pub entropy: Arc<dyn Entropy>,
    /// The seed of all random choices, such as the choice between two servers. No identifier
    /// depends on it.
    pub seed: u64,
    /// The number of topologies that have been started with this bundle or its clones.
    topologies: Arc<AtomicU64>,
}

impl Backend {
    /// Creates a backend like [`new`](Self::new), with a transport that opens sockets with `dial`
    /// and measures timeouts with `clock`.
    pub fn of_sockets(dial: impl Dial, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let transport = NetTransport::new(dial, Arc::clone(&clock));
        Self::new(clock, Arc::new(transport), seed)
    }

    /// Creates a backend from its clock, its transport and its random seed, without a resolver and
    /// without TLS. Identifiers come from the [system's entropy](SystemEntropy). If `transport`
    /// uses a clock, it must use `clock`.
    ///
    /// Equal seeds lead to equal choices, so take `seed` from the operating system's entropy unless
    /// the run must be reproducible.
    pub fn new(clock: Arc<dyn Clock>, transport: Arc<dyn Transport>, seed: u64) -> Self {
        Self {
            clock,
            transport,
            resolver: None,
            tls: None,
            entropy: Arc::new(SystemEntropy),
            seed,
            topologies: Arc::default(),
        }
    }

    /// Returns the seed for the next topology. The first topology that is started with this bundle
    /// or its clones gets [`seed`](Self::seed), and each later one a different seed, so that no two
    /// topologies make the same choices.
    pub fn next_seed(&self) -> u64 {
        match self.topologies.fetch_add(1, Ordering::Relaxed) {
            0 => self.seed,
            number => mix(self.seed.wrapping_add(number)),
        }
    }

    /// Returns random bytes for an identifier, from the [`entropy`](Self::entropy).
    pub fn unique_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }
}

/// All parts that the engine needs: [`Backend`] and a spawner.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Runtime {
    /// The clock, the transport and the other parts that single-threaded mode also needs.
    pub backend: Backend,
    /// Spawns the tasks of monitors.
    pub spawner: Arc<dyn Spawner>,
}

impl Runtime {
    /// Creates a runtime from its backend and its spawner.
    pub fn new(backend: Backend, spawner: Arc<dyn Spawner>) -> Self {
        Self { backend, spawner }
    }
}
