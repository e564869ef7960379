//! The client side of SCRAM, without I/O (RFC 5802, RFC 7677; Authentication: "SCRAM-SHA-1",
//! "SCRAM-SHA-256").

mod derivation;
mod error;
mod keys;
mod mechanism;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

pub(crate) use self::derivation::Derivation;
pub use self::mechanism::Mechanism;
pub(crate) use self::{error::ScramError, keys::Keys};

/// The minimum number of iterations (Authentication: "Drivers MUST enforce a minimum iteration
/// count of 4096").
pub(crate) const MIN_ITERATIONS: u32 = 4096;
/// The maximum number of iterations. Without this limit, a server that has not yet proved its
/// identity could keep the client busy. The limit exceeds current recommendations for password
/// hashing; that many iterations take about a second.
pub(crate) const MAX_ITERATIONS: u32 = 2_000_000;

/// The header of the first message. It requests neither channel binding nor acting as another user.
const GS2_HEADER: &str = "n,,";

/// The client's first message.
pub(crate) struct ClientFirst {
    /// The message without its header.
    bare: String,
    nonce: Box<str>,
}

impl ClientFirst {
    /// Creates the message for `user`. `nonce` is a new random string of printable ASCII characters
    /// without commas.
    pub(crate) fn new(user: &str, nonce: &str) -> Self {
        // Only the escapes of the message format are applied to the name, not SASLprep.
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self { bare: format!("n={user},r={nonce}"), nonce: nonce.into() }
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> Vec<u8> {
        format!("{GS2_HEADER}{}", self.bare).into_bytes()
    }

    /// Processes the server's first message.
    ///
    /// # Errors
    ///
    /// If the message is malformed, if its nonce does not continue the client's nonce, or if it
    /// requests too few or too many iterations.
    pub(crate) fn challenge(&self, server_first: &[u8]) -> Result<Challenge, ScramError> {
        let text = text(server_first)?;
        let mut attributes = text.split(',');
        let mut next = |name| attribute(attributes.next(), name);
        let nonce = next("r")?;
        let salt = decode(next("s")?, "s")?;
        let iterations = next("i")?;
        let is_extended = nonce.len() > self.nonce.len() && nonce.starts_with(&*self.nonce);
        if !is_extended {
            return Err(ScramError::Nonce);
        }
        if salt.is_empty() {
            return Err(ScramError::Malformed("s"));
        }
        let is_number = iterations.bytes().all(|byte| byte.is_ascii_digit());
        let iterations = iterations.parse().ok().filter(|_| is_number);
        let iterations = iterations.ok_or(ScramError::Malformed("i"))?;
        if !(MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations) {
            return Err(ScramError::Iterations(iterations));
        }
        let header = BASE64.encode(GS2_HEADER);
        let without_proof = format!("c={header},r={nonce}");
        Ok(Challenge {
            auth_message: format!("{},{text},{without_proof}", self.bare),
            without_proof,
            salt,
            iterations,
        })
    }
}

sdam_core::opaque!(ClientFirst);

/// The server's challenge, which the client answers with its proof.
pub(crate) struct Challenge {
    salt: Vec<u8>,
    iterations: u32,
    /// The client's last message, without the proof.
    without_proof: String,
    auth_message: String,
}

impl Challenge {
    /// Returns the salt of the user's password.
    pub(crate) fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Returns the number of iterations, from [`MIN_ITERATIONS`] to [`MAX_ITERATIONS`].
    pub(crate) fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Proves that the client has `keys`, which must have been derived with this [salt](Self::salt)
    /// and number of [iterations](Self::iterations).
    pub(crate) fn answer(self, keys: Arc<Keys>) -> ClientFinal {
        let proof = BASE64.encode(keys.client_proof(self.auth_message.as_bytes()));
        ClientFinal {
            message: format!("{},p={proof}", self.without_proof).into_bytes(),
            auth_message: self.auth_message,
            keys,
        }
    }
}

sdam_core::opaque!(Challenge, |this| iterations: this.iterations);

/// The client's last message.
pub(crate) struct ClientFinal {
    message: Vec<u8>,
    auth_message: String,
    keys: Arc<Keys>,
}

impl ClientFinal {
    /// Returns the message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Checks the server's last message, which must prove that the server knows the user's keys.
    ///
    /// # Errors
    ///
    /// If the message is malformed, reports an error, or lacks the proof.
    pub(crate) fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        let text = text(server_final)?;
        if let Some(error) = text.strip_prefix("e=") {
            return Err(ScramError::Server(error.into()));
        }
        let signature = decode(attribute(Some(text), "v")?, "v")?;
        if self.keys.is_server_signature(self.auth_message.as_bytes(), &signature) {
            Ok(())
        } else {
            Err(ScramError::Signature)
        }
    }
}

sdam_core::opaque!(ClientFinal);

fn text(message: &[u8]) -> Result<&str, ScramError> {
    str::from_utf8(message).map_err(|_| ScramError::Malformed("text"))
}

fn attribute<'t>(part: Option<&'t str>, name: &'static str) -> Result<&'t str, ScramError> {
    part.and_then(|part| part.strip_prefix(name)?.strip_prefix('='))
        .ok_or(ScramError::Malformed(name))
}

fn decode(text: &str, name: &'static str) -> Result<Vec<u8>, ScramError> {
    BASE64.decode(text).map_err(|_| ScramError::Malformed(name))
}
