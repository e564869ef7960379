//! The user that connections authenticate as.

use std::sync::Arc;

use sdam_core::{
    address::ServerAddress,
    error::Error,
    options::{ConfigError, Options},
};
use sdam_transport::{
    async_trait,
    entropy::{Entropy, SystemEntropy},
    pool::{Authenticator, Conversation},
};

use crate::{
    config::{self, Method},
    conversation::{PlainConversation, ScramConversation, X509Conversation},
    shared::Shared,
};

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
    /// `sdam` sets that of its runtime.
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
