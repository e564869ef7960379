//! The user that connections authenticate as, and the state that the conversations of an account
//! share.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sdam_core::{
    address::ServerAddress,
    document::DocumentWriter,
    error::Error,
    hello::HelloAuth,
    options::{ConfigError, Options, ServerApi},
};
use sdam_transport::{
    async_trait,
    pool::{AuthStep, Authenticator, Conversation},
    runtime::{Entropy, SystemEntropy},
    spawn::yield_now,
};
use zeroize::Zeroizing;

use crate::{
    config::{self, Method},
    conversation::{PlainConversation, ScramConversation, X509Conversation},
    scram::{Derivation, Keys, Mechanism, ScramError},
};

/// The number of iterations after which other tasks of the thread get a chance to run. That many
/// iterations take less than a tenth of a millisecond.
const SLICE: u32 = 64;

/// The maximum number of cached keys. A user has one salt per mechanism, and a password change
/// creates new salts.
const CAPACITY: usize = 8;

/// The user that connections authenticate as, and the mechanism to use.
///
/// Caches the keys derived from the password, so only the first connection spends time on deriving
/// them. The `Debug` output contains no secrets. Cloning is cheap, and clones share the cached
/// keys.
///
/// The server chooses the number of iterations before it has proved its identity; 2,000,000 is the
/// upper limit. Keys are therefore derived in slices of less than a tenth of a millisecond. Between
/// two slices, the executor can run other tasks, and the time limit of the connection is checked. If
/// the connection is dropped between two slices, the derivation ends and its intermediate result is
/// discarded.
#[derive(Clone)]
pub struct Account {
    method: Method,
    pub(crate) shared: Arc<Shared>,
    entropy: Arc<dyn Entropy>,
}

impl Account {
    /// Returns the account for the credential in `options`, or `None` if there is no credential.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`authenticator`](crate::authenticator).
    pub fn of(options: &Options) -> Result<Option<Self>, ConfigError> {
        let Some(mut credential) = options.credential.clone() else {
            return Ok(None);
        };
        let source = credential.source_or(options.auth_source.as_deref()).into();
        credential.source = Some(source);
        let (method, user) = config::method(&credential, options.tls.is_some())?;
        let shared = Arc::new(Shared::new(user, options.server_api.clone()));
        Ok(Some(Self { method, shared, entropy: Arc::new(SystemEntropy) }))
    }

    /// Replaces the operating system's source of random numbers for nonces. `TopologyBuilder` of
    /// `sdam` sets the source of its runtime.
    #[must_use]
    pub fn with_entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }
}

sdam_core::opaque!(Account, |this| mechanism: this.method.name());

#[async_trait]
impl Authenticator for Account {
    async fn begin(&self, _: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        let shared = Arc::clone(&self.shared);
        Ok(match self.method {
            Method::Plain => Box::new(PlainConversation(shared)),
            Method::Scram(mechanism) => {
                Box::new(ScramConversation::new(shared, mechanism, Arc::clone(&self.entropy)))
            }
            Method::X509 => Box::new(X509Conversation(shared)),
        })
    }
}

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
        let mut auth = HelloAuth::default();
        auth.speculative_authenticate = Some(command.finish().into());
        auth
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

/// All inputs of a key derivation except the account's password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyId {
    pub(crate) mechanism: Mechanism,
    pub(crate) salt: Box<[u8]>,
    pub(crate) iterations: u32,
}

/// The keys of one account, oldest first (Authentication: "Caching credentials in SCRAM").
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
