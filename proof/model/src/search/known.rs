//! The set of known states, which threads share.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

const SHARDS: usize = 64;

/// The keys of all known states, in shards, each with its own lock.
pub(super) struct Known {
    shards: Vec<Mutex<HashSet<u128, BuildHasherDefault<OwnHash>>>>,
    len: AtomicUsize,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            len: AtomicUsize::new(0),
        }
    }
}

impl Known {
    /// Adds a state. Returns whether it is new.
    pub(super) fn insert(&self, key: u128) -> bool {
        let shard = &self.shards[(key >> 122) as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = shard.insert(key);
        drop(shard);
        if is_new {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

/// Uses the key itself as the hash, because keys already are hashes.
#[derive(Default)]
pub(super) struct OwnHash(u64);

impl Hasher for OwnHash {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
