//! The server side of SCRAM, for tests and simulated servers.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use crate::scram::{Keys, Mechanism};

/// The stored form of a user's password.
#[derive(Clone, Debug)]
pub struct StoredUser {
    /// The keys with which the server verifies proofs.
    pub(crate) keys: Arc<Keys>,
    /// The salt of the password.
    pub(crate) salt: Vec<u8>,
    /// The number of iterations.
    pub(crate) iterations: u32,
}

impl StoredUser {
    /// Creates the stored form of a password; returns `None` if the mechanism prohibits the
    /// password.
    pub fn new(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Option<Self> {
        let secret = mechanism.prepare(user, password).ok()?;
        Some(Self {
            keys: Arc::new(Keys::derive(mechanism, &secret, salt, iterations)),
            salt: salt.into(),
            iterations,
        })
    }
}

/// The server's state in a conversation once it has received the client's first message.
pub struct ServerConversation {
    keys: Arc<Keys>,
    nonce: String,
    /// The client's first message, without its header.
    client: String,
    message: String,
}

impl ServerConversation {
    /// Returns the name of the user in a client's first message, or `None` if the message is
    /// malformed.
    pub fn user(client_first: &[u8]) -> Option<String> {
        let (name, _) = parse(client_first)?;
        Some(name.replace("=2C", ",").replace("=3D", "="))
    }

    /// Answers the client's first message. `nonce` is the server's part of the nonce. Returns
    /// `None` if the message is malformed.
    pub fn begin(client_first: &[u8], user: &StoredUser, nonce: &str) -> Option<Self> {
        let (name, client_nonce) = parse(client_first)?;
        let nonce = format!("{client_nonce}{nonce}");
        let salt = BASE64.encode(&user.salt);
        Some(Self {
            keys: Arc::clone(&user.keys),
            client: format!("n={name},r={client_nonce}"),
            message: format!("r={nonce},s={salt},i={}", user.iterations),
            nonce,
        })
    }

    /// Returns the server's first message.
    pub fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// Checks the client's last message and returns the server's last message, or `None` if the
    /// client has not proved that it knows the password.
    pub fn finish(&self, client_final: &[u8]) -> Option<Vec<u8>> {
        let text = str::from_utf8(client_final).ok()?;
        let (without_proof, proof) = text.split_once(",p=")?;
        if without_proof != format!("c=biws,r={}", self.nonce) {
            return None;
        }
        let auth_message = format!("{},{},{without_proof}", self.client, self.message);
        let auth_message = auth_message.as_bytes();
        if BASE64.decode(proof).ok()? != self.keys.client_proof(auth_message) {
            return None;
        }
        let signature = BASE64.encode(self.keys.server_signature(auth_message));
        Some(format!("v={signature}").into_bytes())
    }
}

sdam_core::opaque!(ServerConversation);

/// Returns the escaped name and the nonce in a client's first message.
fn parse(client_first: &[u8]) -> Option<(&str, &str)> {
    let text = str::from_utf8(client_first).ok()?;
    let (name, nonce) = text.strip_prefix("n,,n=")?.split_once(",r=")?;
    (!name.contains(',')).then_some((name, nonce))
}
