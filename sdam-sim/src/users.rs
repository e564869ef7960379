//! The users of a deployment.

use std::{collections::BTreeMap, sync::Arc};

pub use sdam_auth::Mechanism;
use sdam_auth::testing::{ServerConversation, StoredUser};

/// The iteration count for the passwords of simulated users. It is the minimum that clients accept.
const ITERATIONS: u32 = 4096;

/// A user for SCRAM authentication.
///
/// Like `mongod --auth`, a deployment with users refuses commands on unauthenticated connections.
#[derive(Clone, Debug)]
pub struct User {
    name: String,
    source: String,
    mechanisms: Vec<(Mechanism, StoredUser)>,
}

impl User {
    /// Creates a user in the database `admin`, with every mechanism that supports the password.
    pub fn new(name: &str, password: &str) -> Self {
        let stored = |mechanism: Mechanism| {
            let salt = format!("{}/{name}", mechanism.name());
            let salt = salt.as_bytes();
            let stored = StoredUser::new(mechanism, name, password, salt, ITERATIONS)?;
            Some((mechanism, stored))
        };
        Self {
            name: name.to_owned(),
            source: "admin".to_owned(),
            mechanisms: Mechanism::ALL.into_iter().filter_map(stored).collect(),
        }
    }

    /// Sets the database in which the user is defined.
    #[must_use]
    pub fn source(mut self, database: &str) -> Self {
        database.clone_into(&mut self.source);
        self
    }

    /// Removes every mechanism except this one.
    #[must_use]
    pub fn only(mut self, mechanism: Mechanism) -> Self {
        self.mechanisms.retain(|(own, _)| *own == mechanism);
        self
    }
}

/// The users of a deployment, keyed by `database.user`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(Arc<BTreeMap<String, User>>);

impl Users {
    pub(crate) fn add(&mut self, user: User) {
        let name = format!("{}.{}", user.source, user.name);
        Arc::make_mut(&mut self.0).insert(name, user);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the mechanisms of a user, or `None` if there is no such user.
    pub(crate) fn mechanisms(&self, name: &str) -> Option<Vec<&'static str>> {
        let user = self.0.get(name)?;
        Some(user.mechanisms.iter().map(|(own, _)| own.name()).collect())
    }

    /// Answers a client's first message. Returns `None` if no user with this name has this
    /// mechanism.
    pub(crate) fn begin(
        &self,
        source: &str,
        mechanism: &str,
        client_first: &[u8],
        nonce: &str,
    ) -> Option<ServerConversation> {
        let name = ServerConversation::user(client_first)?;
        let user = self.0.get(&format!("{source}.{name}"))?;
        let mut mechanisms = user.mechanisms.iter();
        let (_, stored) = mechanisms.find(|(own, _)| own.name() == mechanism)?;
        ServerConversation::begin(client_first, stored, nonce)
    }
}
