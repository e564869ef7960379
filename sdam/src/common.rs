//! The unchanging part of a topology.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sdam_core::{
    monitor::MonitorConfig,
    options::{Options, Warning},
    rng::mix,
};
use sdam_select::settings::Settings;
use sdam_transport::{pool::Authenticator, runtime::Backend, spawn::Spawner};

use crate::{lane::lane_of_thread, metadata::MetadataHandshake};

/// The number of counters from which random numbers are derived.
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

/// A counter, aligned to its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl Counters {
    /// Creates the counters. All start with the same seed, so a thread draws the same numbers
    /// whichever lane it uses.
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
