//! A cache of the keys that are derived from a password (Authentication: "Caching credentials in
//! SCRAM").

use std::{collections::VecDeque, sync::Arc};

use crate::scram::{Keys, Mechanism};

/// The maximum number of cached keys. A user has one salt per mechanism, and a password change
/// creates new salts.
const CAPACITY: usize = 8;

/// All inputs of a key derivation except the account's password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyId {
    pub(crate) mechanism: Mechanism,
    pub(crate) salt: Box<[u8]>,
    pub(crate) iterations: u32,
}

/// The keys of one account, oldest first.
#[derive(Debug, Default)]
pub(crate) struct KeyCache(pub(crate) VecDeque<(KeyId, Arc<Keys>)>);

impl KeyCache {
    pub(crate) fn find(&self, id: &KeyId) -> Option<Arc<Keys>> {
        let mut entries = self.0.iter();
        let found = entries.find(|(own, _)| own == id);
        found.map(|(_, keys)| Arc::clone(keys))
    }

    /// Adds keys to the cache. If the cache is full, the oldest keys are removed.
    pub(crate) fn insert(&mut self, id: KeyId, keys: Arc<Keys>) {
        if self.find(&id).is_some() {
            return;
        }
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back((id, keys));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_keys_give_way_to_new_ones() {
        let mechanism = Mechanism::ScramSha256;
        let keys = Arc::new(Keys::derive(mechanism, "secret", b"salt", 1));
        let id = |iterations| KeyId { mechanism, salt: Box::from(*b"salt"), iterations };
        let mut cache = KeyCache::default();
        for iterations in 0..=8 {
            for _ in 0..2 {
                cache.insert(id(iterations), Arc::clone(&keys));
            }
        }
        assert_eq!(cache.0.len(), CAPACITY);
        assert!(cache.find(&id(0)).is_none());
        assert!((1..=8).all(|iterations| cache.find(&id(iterations)).is_some()));
        let other = KeyId { mechanism: Mechanism::ScramSha1, ..id(8) };
        assert!(cache.find(&other).is_none());
    }
}
