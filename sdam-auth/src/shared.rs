//! What the conversations of an account share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdam_core::options::ServerApi;

use crate::{
    cache::{KeyCache, KeyId},
    method::User,
    scram::{Keys, ScramError},
};

/// The part of an account that its conversations share.
pub(crate) struct Shared {
    pub(crate) server_api: Option<ServerApi>,
    cache: Mutex<KeyCache>,
}

impl Shared {
    pub(crate) fn new(server_api: Option<ServerApi>) -> Self {
        Self {
            server_api,
            cache: Mutex::default(),
        }
    }

    /// Returns the keys of `user`, from the cache if they are in it.
    pub(crate) fn keys(&self, user: &User, id: &KeyId) -> Result<Arc<Keys>, ScramError> {
        if let Some(keys) = self.cache().find(id) {
            return Ok(keys);
        }
        // Without the lock, because it takes long.
        let secret = id.mechanism.prepare(&user.name, &user.password)?;
        let keys = Keys::derive(id.mechanism, &secret, &id.salt, id.iterations);
        Ok(Arc::new(keys))
    }

    /// Keeps the keys with which a server has proved that it knows the user.
    pub(crate) fn remember(&self, id: KeyId, keys: Arc<Keys>) {
        self.cache().insert(id, keys);
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, KeyCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
