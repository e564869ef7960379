//! State shared by the conversations of an account.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdam_core::{document::DocumentWriter, hello::HelloAuth, options::ServerApi};
use sdam_transport::{pool::AuthStep, spawn::yield_now};
use zeroize::Zeroizing;

use crate::{
    cache::{KeyCache, KeyId},
    scram::{Derivation, Keys, ScramError},
};

/// The number of iterations after which other tasks of the thread get a chance to run. That many
/// iterations take less than a tenth of a millisecond.
const SLICE: u32 = 64;

/// The part of an account that all its conversations share.
pub(crate) struct Shared {
    pub(crate) user: User,
    server_api: Option<ServerApi>,
    cache: Mutex<KeyCache>,
}

/// A user and the database that defines it.
pub(crate) struct User {
    /// The name; empty if the server takes it from the client's certificate.
    pub(crate) name: Box<str>,
    /// The password; empty if the mechanism has none.
    pub(crate) password: Zeroizing<Box<str>>,
    pub(crate) source: Box<str>,
}

impl Shared {
    pub(crate) fn new(user: User, server_api: Option<ServerApi>) -> Self {
        Self { user, server_api, cache: Mutex::default() }
    }

    /// Returns the step that sends a command to the user's database.
    pub(crate) fn send(&self, write: impl FnOnce(&mut DocumentWriter)) -> AuthStep {
        let mut command = DocumentWriter::new();
        write(&mut command);
        if let Some(api) = &self.server_api {
            api.declare(&mut command);
        }
        command.text("$db", &*self.user.source);
        AuthStep::Send(command.finish())
    }

    /// Returns the fields that add the command written by `write` to a hello. The hello itself
    /// declares the API version (Handshake: "Speculative Authentication").
    pub(crate) fn speculate(&self, write: impl FnOnce(&mut DocumentWriter)) -> HelloAuth {
        let mut command = DocumentWriter::new();
        write(&mut command);
        command.text("db", &*self.user.source);
        HelloAuth::default().with_speculative_authenticate(command.finish())
    }

    /// Returns the keys of the user, from the cache if possible. Otherwise derives the keys. The
    /// derivation may take long, because the server chooses the number of iterations. It therefore
    /// runs in slices, between which other tasks can run.
    pub(crate) async fn keys(&self, id: &KeyId) -> Result<Arc<Keys>, ScramError> {
        let found = self.cache().find(id);
        if let Some(keys) = found {
            return Ok(keys);
        }
        let secret = id.mechanism.prepare(&self.user.name, &self.user.password)?;
        let mut derivation = Derivation::new(id.mechanism, &secret, &id.salt, id.iterations);
        loop {
            if let Some(keys) = derivation.advance(SLICE) {
                return Ok(Arc::new(keys));
            }
            yield_now().await;
        }
    }

    /// Caches `keys`, after a server has used them to prove its identity.
    pub(crate) fn remember(&self, id: KeyId, keys: Arc<Keys>) {
        self.cache().insert(id, keys);
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, KeyCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
