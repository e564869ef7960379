//! State shared by the conversations of an account.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdam_core::options::ServerApi;
use sdam_transport::spawn::yield_now;

use crate::{
    cache::{KeyCache, KeyId},
    method::User,
    scram::{Derivation, Keys, ScramError},
};

/// The number of iterations between two opportunities for other tasks of the thread. They take less
/// than a tenth of a millisecond.
const SLICE: u32 = 64;

/// The part of an account that all its conversations share.
pub(crate) struct Shared {
    pub(crate) server_api: Option<ServerApi>,
    cache: Mutex<KeyCache>,
}

impl Shared {
    pub(crate) fn new(server_api: Option<ServerApi>) -> Self {
        Self { server_api, cache: Mutex::default() }
    }

    /// Returns the keys of `user`, from the cache if possible. Otherwise they are derived in slices
    /// between which other tasks run, because the server chooses the number of iterations.
    pub(crate) async fn keys(&self, user: &User, id: &KeyId) -> Result<Arc<Keys>, ScramError> {
        let found = self.cache().find(id);
        if let Some(keys) = found {
            return Ok(keys);
        }
        let secret = id.mechanism.prepare(&user.name, &user.password)?;
        let mut derivation = Derivation::new(id.mechanism, &secret, &id.salt, id.iterations);
        loop {
            if let Some(keys) = derivation.advance(SLICE) {
                return Ok(Arc::new(keys));
            }
            yield_now().await;
        }
    }

    /// Caches the keys with which a server has proved its identity.
    pub(crate) fn remember(&self, id: KeyId, keys: Arc<Keys>) {
        self.cache().insert(id, keys);
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, KeyCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
