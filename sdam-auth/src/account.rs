//! The user that connections authenticate as.

use std::sync::Arc;

use sdam_core::{
    address::ServerAddress,
    error::Error,
    options::{ConfigError, Options},
};
use sdam_transport::{
    async_trait,
    pool::{Authenticator, Conversation},
};

use crate::{
    config::{self, Method},
    conversation::{PlainConversation, ScramConversation, X509Conversation},
    entropy::{Entropy, os_entropy},
    shared::Shared,
};

/// The user as whom connections authenticate, and the mechanism that they use.
///
/// Caches the keys derived from the password, so that only the first connection spends the time to
/// derive them. Its `Debug` output contains no secret. Cheap to clone; clones share the keys.
///
/// The server chooses the number of iterations, up to
/// [`MAX_ITERATIONS`](crate::scram::MAX_ITERATIONS), before it has proved its identity. Keys are
/// therefore derived in slices of less than a tenth of a millisecond. Between slices, the executor
/// runs other tasks, and the time limit of the connection is checked. If the connection is dropped
/// in between, the derivation ends and its intermediate result is discarded.
#[derive(Clone)]
pub struct Account {
    method: Method,
    pub(crate) shared: Arc<Shared>,
    entropy: Entropy,
}

impl Account {
    /// Returns the account of the credential in `options`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The errors of [`authenticator`](crate::authenticator).
    pub fn of(options: &Options) -> Result<Option<Self>, ConfigError> {
        let Some(credential) = &options.credential else {
            return Ok(None);
        };
        let (method, user) = config::method(credential, options.tls.is_some())?;
        let shared = Arc::new(Shared::new(user, options.server_api.clone()));
        Ok(Some(Self { method, shared, entropy: os_entropy() }))
    }

    /// Replaces the operating system's random numbers, for tests and for systems that have none.
    #[must_use]
    pub fn with_entropy(mut self, entropy: Entropy) -> Self {
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
                Box::new(ScramConversation::new(shared, mechanism, Arc::clone(&self.entropy))?)
            }
            Method::X509 => Box::new(X509Conversation(shared)),
        })
    }
}
