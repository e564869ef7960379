//! The bundles of a clock, a transport, a resolver, entropy and a spawner that an engine gets, and
//! the source of random bytes for unique identifiers and nonces.

use std::{
    fmt::Debug,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use sdam_core::rng::mix;

use crate::{
    clock::Clock, connect::Transport, dial::Dial, net::NetTransport, resolve::Resolver,
    spawn::Spawner, tls::TlsProvider,
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

/// A source of random bytes for identifiers, such as those of sessions and topologies, and for the
/// nonces of authentications.
///
/// These bytes never come from a seed, except in a simulation, because a server cannot distinguish
/// two clients that use the same session id.
///
/// # Contract
///
/// The bytes are unpredictable, and differ from call to call and between any two clients of a
/// deployment. `fill` does not block, and its caller may hold a lock.
pub trait Entropy: Debug + Send + Sync {
    /// Fills `bytes` with random data.
    fn fill(&self, bytes: &mut [u8]);
}

/// Random bytes from the operating system.
///
/// If the system returns an error, the bytes come from the keys of the standard library's hash
/// maps, which are secret and seeded by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if getrandom::fill(bytes).is_err() {
            fill_from_keys(bytes);
        }
    }
}

fn fill_from_keys(bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let random = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        for (byte, random) in chunk.iter_mut().zip(random) {
            *byte = random;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_both_sources_differs_from_call_to_call() {
        let system: fn(&mut [u8]) = |bytes| SystemEntropy.fill(bytes);
        for fill in [system, fill_from_keys] {
            let mut seen = [[false; 256]; 16];
            for _ in 0..16 {
                let mut bytes = [0; 16];
                fill(&mut bytes);
                for (seen, byte) in seen.iter_mut().zip(bytes) {
                    seen[usize::from(byte)] = true;
                }
            }
            let count = |seen: &[bool; 256]| seen.iter().filter(|seen| **seen).count();
            assert!(seen.iter().all(|seen| count(seen) > 8), "too many repetitions");
        }
    }
}
