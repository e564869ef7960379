//! Pools that only record their calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sdam_core::{
    ids::{Generation, ServerId},
    pool::{NewPool, PoolClear, PoolFactory, PoolHandle},
};

/// The generations of the pools, by server; clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordingPools {
    generations: Arc<Mutex<BTreeMap<ServerId, Generation>>>,
}

impl RecordingPools {
    /// Returns the generations of the open pools.
    pub(crate) fn generations(&self) -> BTreeMap<ServerId, Generation> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerId, Generation>> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolFactory for RecordingPools {
    type Pool = RecordingPool;

    fn create(&self, new: NewPool) -> RecordingPool {
        self.lock().insert(new.server, new.generation);
        RecordingPool {
            pools: self.clone(),
            id: new.server,
        }
    }
}

#[derive(Debug)]
pub(crate) struct RecordingPool {
    pools: RecordingPools,
    id: ServerId,
}

impl PoolHandle for RecordingPool {
    fn ready(&self) {}

    fn clear(&self, clear: &PoolClear) {
        self.pools.lock().insert(self.id, clear.generation);
    }

    fn close(&self) {
        self.pools.lock().remove(&self.id);
    }
}
