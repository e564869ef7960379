//! The unchanging part of a topology, the random numbers for selections, and the client metadata
//! for the handshakes of new connections.

use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use sdam_core::{
    hello::{Handshake, HelloRequest},
    monitor::MonitorConfig,
    options::{ConfigError, Options, Warning},
    rng::mix,
};
use sdam_select::settings::Settings;
use sdam_transport::{
    handshake::{ClientMetadata, DriverInfo},
    pool::Authenticator,
    runtime::Backend,
    spawn::Spawner,
};

/// The number of lanes: counters from which random numbers are derived.
const LANES: usize = 4;

/// The unchanging part of a topology.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) backend: Backend,
    /// Spawns the tasks of a topology with background monitors.
    pub(crate) spawner: Option<Arc<dyn Spawner>>,
    pub(crate) settings: Settings,
    pub(crate) options: Arc<Options>,
    /// Authenticates the connections of pools, and those of single-threaded mode before operations
    /// use them.
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) config: Arc<MonitorConfig>,
    pub(crate) metadata: MetadataHandshake,
    pub(crate) counters: Counters,
}

/// The counters from which random numbers are derived.
#[derive(Debug)]
pub(crate) struct Counters([Counter; LANES]);

/// A counter, aligned to its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Counter(AtomicU64);

impl Counters {
    /// Creates the counters. All start with the same seed, so a thread draws the same numbers in
    /// every lane.
    pub(crate) fn new(seed: u64) -> Self {
        Self(std::array::from_fn(|_| Counter(AtomicU64::new(seed))))
    }
}

impl Common {
    /// Returns 64 random bits and the lane of the calling thread.
    pub(crate) fn random(&self) -> (u64, usize) {
        let lane = lane_of_thread() % LANES;
        let [first, ..] = &self.counters.0;
        let counter = &self.counters.0.get(lane).unwrap_or(first).0;
        // This is deliberately not one atomic step, which would take longer. Two threads that share
        // a lane may draw the same number, which is harmless.
        let state = counter.load(Ordering::Relaxed);
        counter.store(state.wrapping_add(0x9E37_79B9_7F4A_7C15), Ordering::Relaxed);
        (mix(state), lane)
    }
}

/// Returns a number that is constant for each thread and rarely shared by two threads.
///
/// The number determines the thread's counter, and has no influence on selection. It is cached in a
/// thread-local, because reading the thread id would take a quarter of the time of a selection.
fn lane_of_thread() -> usize {
    thread_local! {
        static LANE: usize = {
            let mut hasher = ThreadNumber(0);
            std::thread::current().id().hash(&mut hasher);
            hasher.0 as usize
        };
    }
    LANE.try_with(|lane| *lane).unwrap_or_default()
}

/// A hasher that extracts a thread's number from its opaque id.
struct ThreadNumber(u64);

impl Hasher for ThreadNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }
}

/// The client metadata.
#[derive(Debug)]
pub(crate) enum Metadata {
    /// The default metadata, or the metadata set on the builder. Wrapping libraries may be appended
    /// at run time.
    Own(Mutex<ClientMetadata>),
    Driver(DriverDocument),
}

/// The `client` document of a driver, which may change at run time.
pub(crate) struct DriverDocument {
    pub(crate) is_faas: bool,
    pub(crate) encode: Arc<dyn Fn() -> Vec<u8> + Send + Sync>,
}

/// The data for the first message of each new connection.
#[derive(Debug)]
pub(crate) struct MetadataHandshake {
    metadata: Metadata,
    load_balanced: bool,
}

impl MetadataHandshake {
    /// Creates the data. Adds the application's name to the metadata, but not to a driver's
    /// document, which already contains it. Returns an error if a driver's document is not valid.
    pub(crate) fn new(metadata: Metadata, options: &Options) -> Result<Self, ConfigError> {
        match (&metadata, &options.app_name) {
            (Metadata::Own(metadata), Some(name)) => {
                let mut metadata = lock(metadata);
                *metadata = metadata.clone().with_application(name)?;
            }
            (Metadata::Own(_), None) => {}
            (Metadata::Driver(document), _) => ClientMetadata::check_encoded(&(document.encode)())?,
        }
        Ok(Self { metadata, load_balanced: options.load_balanced })
    }

    /// Returns whether the program runs on a FaaS platform.
    pub(crate) fn is_faas(&self) -> bool {
        match &self.metadata {
            Metadata::Own(metadata) => lock(metadata).is_faas(),
            Metadata::Driver(document) => document.is_faas,
        }
    }

    /// Returns the handshake for a new connection.
    pub(crate) fn handshake(&self) -> Arc<Handshake> {
        let client = match &self.metadata {
            Metadata::Own(metadata) => lock(metadata).encode(),
            Metadata::Driver(document) => {
                let client = (document.encode)();
                // Omits an invalid document, because servers refuse a connection whose document is
                // too long.
                let is_valid = ClientMetadata::check_encoded(&client).is_ok();
                if is_valid { client.into() } else { Box::default() }
            }
        };
        let mut handshake = Handshake::new(client);
        handshake.load_balanced = self.load_balanced;
        Arc::new(handshake)
    }

    /// Appends a library; returns false if it was already appended.
    pub(crate) fn append(&self, library: DriverInfo) -> Result<bool, ConfigError> {
        match &self.metadata {
            Metadata::Own(metadata) => lock(metadata).append(library),
            Metadata::Driver(_) => {
                let reason = "the driver makes the client document itself";
                let remedy = "append the library to that";
                Err(ConfigError::new("driver name", "", reason, remedy))
            }
        }
    }

    /// Replaces the handshake of a connection's first request with the current handshake.
    pub(crate) fn renew(&self, request: HelloRequest) -> HelloRequest {
        if request.handshake.is_some() { request.with_handshake(self.handshake()) } else { request }
    }
}

fn lock(metadata: &Mutex<ClientMetadata>) -> MutexGuard<'_, ClientMetadata> {
    metadata.lock().unwrap_or_else(PoisonError::into_inner)
}

sdam_core::opaque!(DriverDocument, |this| is_faas: this.is_faas);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_constant_lane_number() {
        let numbers = || [lane_of_thread(), lane_of_thread()];
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(numbers)).collect();
        let mut seen: Vec<_> =
            threads.into_iter().map(|thread| thread.join().unwrap()).chain([numbers()]).collect();
        assert!(seen.iter().all(|[first, second]| first == second));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5, "{seen:?}");
    }
}
