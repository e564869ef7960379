//! Random identifiers for simulated clients.

use std::sync::{Mutex, PoisonError};

use sdam_core::rng::Rng;
use sdam_transport::entropy::Entropy;

/// A source of identifiers that are derived from the simulation's seed, so that runs are
/// reproducible. All clients in a simulation share it, so no two have the same identifier.
#[derive(Debug)]
pub(super) struct SimEntropy(pub(super) Mutex<Rng>);

impl Entropy for SimEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&rng.next_u64().to_be_bytes()[..chunk.len()]);
        }
    }
}
