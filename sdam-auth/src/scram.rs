//! The client side of SCRAM, without I/O (RFC 5802, RFC 7677; Authentication: "SCRAM-SHA-1",
//! "SCRAM-SHA-256").

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sdam_core::error::Error;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The minimum number of iterations (Authentication: "Drivers MUST enforce a minimum iteration
/// count of 4096").
const MIN_ITERATIONS: u32 = 4096;
/// The maximum number of iterations. Without this limit, a server that has not yet proved its
/// identity could keep the client busy. The limit exceeds current recommendations for password
/// hashing; that many iterations take about a second.
pub(crate) const MAX_ITERATIONS: u32 = 2_000_000;

/// A SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SCRAM-SHA-1, which uses a digest of the user name and the password in place of the password.
    ScramSha1,
    /// SCRAM-SHA-256, which uses the password after SASLprep has been applied to it.
    ScramSha256,
}

impl Mechanism {
    /// All SCRAM mechanisms.
    pub const ALL: [Self; 2] = [Self::ScramSha1, Self::ScramSha256];

    /// Returns the name, such as `SCRAM-SHA-256`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramSha1 => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// Returns the secret from which the keys are derived.
    ///
    /// # Errors
    ///
    /// [`ScramError::Password`] if the mechanism is SCRAM-SHA-256 and SASLprep prohibits a
    /// character of the password.
    pub(crate) fn prepare(
        self,
        user: &str,
        password: &str,
    ) -> Result<Zeroizing<String>, ScramError> {
        match self {
            Self::ScramSha1 => {
                let mut digest = Md5::new();
                for part in [user, ":mongo:", password] {
                    digest.update(part);
                }
                let digits = digest.finalize().iter().fold(
                    Zeroizing::new(String::with_capacity(32)),
                    |mut digits, byte| {
                        for half in [byte >> 4, byte & 15] {
                            digits.extend(char::from_digit(half.into(), 16));
                        }
                        digits
                    },
                );
                Ok(digits)
            }
            Self::ScramSha256 => stringprep::saslprep(password)
                .map(|text| Zeroizing::new(text.into_owned()))
                .map_err(|_| ScramError::Password),
        }
    }
}

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

/// An incremental derivation of keys (RFC 5802: `Hi`).
///
/// This is PBKDF2 with a derived key that is as long as the hash, so only one block is needed.
pub(crate) enum Derivation {
    Sha1(Block<Hmac<Sha1>>),
    Sha256(Block<Hmac<Sha256>>),
}

/// A PBKDF2 block (RFC 8018, section 5.2).
pub(crate) struct Block<M> {
    /// The hash function, keyed with the secret.
    mac: M,
    last: Zeroizing<Vec<u8>>,
    sum: Zeroizing<Vec<u8>>,
    left: u32,
}

impl Derivation {
    /// Begins to derive keys from the [prepared](Mechanism::prepare) secret.
    pub(crate) fn new(mechanism: Mechanism, secret: &str, salt: &[u8], iterations: u32) -> Self {
        let secret = secret.as_bytes();
        match mechanism {
            Mechanism::ScramSha1 => Self::Sha1(Block::new(keyed(secret), salt, iterations)),
            Mechanism::ScramSha256 => Self::Sha256(Block::new(keyed(secret), salt, iterations)),
        }
    }

    /// Runs at most `iterations` further iterations. Returns the keys once the last iteration is
    /// done.
    pub(crate) fn advance(&mut self, iterations: u32) -> Option<Keys> {
        let (mechanism, salted) = match self {
            Self::Sha1(block) => (Mechanism::ScramSha1, block.advance(iterations)),
            Self::Sha256(block) => (Mechanism::ScramSha256, block.advance(iterations)),
        };
        salted.map(|salted| Keys::of_salted_password(mechanism, salted))
    }
}

impl<M: Mac + Clone> Block<M> {
    fn new(mac: M, salt: &[u8], iterations: u32) -> Self {
        let first = mac.clone().chain_update(salt).chain_update([0, 0, 0, 1]);
        let first = Zeroizing::new(first.finalize().into_bytes().to_vec());
        Self { mac, sum: first.clone(), last: first, left: iterations.saturating_sub(1) }
    }

    fn advance(&mut self, iterations: u32) -> Option<&[u8]> {
        let now = iterations.min(self.left);
        for _ in 0..now {
            let next = self.mac.clone().chain_update(&*self.last).finalize();
            self.last.copy_from_slice(&next.into_bytes());
            for (sum, byte) in self.sum.iter_mut().zip(self.last.iter()) {
                *sum ^= byte;
            }
        }
        self.left -= now;
        (self.left == 0).then_some(&self.sum)
    }
}

/// The keys that client and server derive from a password, its salt and the number of iterations.
/// The keys are as sensitive as the password, so they are erased when they are dropped.
pub(crate) struct Keys {
    mechanism: Mechanism,
    client: Bytes,
    server: Bytes,
}

type Bytes = Zeroizing<Vec<u8>>;

impl Keys {
    /// Derives the keys from the [prepared](Mechanism::prepare) secret. The duration is
    /// proportional to `iterations`: usually a few milliseconds, and about a second for
    /// [`MAX_ITERATIONS`]. An [`Account`](crate::Account) lets other tasks
    /// run in the meantime.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn derive(mechanism: Mechanism, secret: &str, salt: &[u8], iterations: u32) -> Self {
        let mut derivation = Derivation::new(mechanism, secret, salt, iterations);
        loop {
            if let Some(keys) = derivation.advance(u32::MAX) {
                return keys;
            }
        }
    }

    /// Creates the keys from the salted password, which is the result of all iterations.
    fn of_salted_password(mechanism: Mechanism, salted: &[u8]) -> Self {
        Self {
            mechanism,
            client: mac(mechanism, salted, b"Client Key"),
            server: mac(mechanism, salted, b"Server Key"),
        }
    }

    /// Returns the client's proof that it has the keys.
    pub(crate) fn client_proof(&self, auth_message: &[u8]) -> Vec<u8> {
        let signature = mac(self.mechanism, &self.stored_key(), auth_message);
        let pairs = self.client.iter().zip(signature.iter());
        pairs.map(|(key, mask)| key ^ mask).collect()
    }

    /// Returns the server's proof that it has the keys.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn server_signature(&self, auth_message: &[u8]) -> Vec<u8> {
        mac(self.mechanism, &self.server, auth_message).to_vec()
    }

    /// Compares `signature` with the server's proof. The comparison takes constant time.
    fn is_server_signature(&self, auth_message: &[u8], signature: &[u8]) -> bool {
        let key = &self.server;
        let verified = match self.mechanism {
            Mechanism::ScramSha1 => {
                keyed::<Hmac<Sha1>>(key).chain_update(auth_message).verify_slice(signature)
            }
            Mechanism::ScramSha256 => {
                keyed::<Hmac<Sha256>>(key).chain_update(auth_message).verify_slice(signature)
            }
        };
        verified.is_ok()
    }

    fn stored_key(&self) -> Bytes {
        match self.mechanism {
            Mechanism::ScramSha1 => Sha1::digest(&*self.client).to_vec(),
            Mechanism::ScramSha256 => Sha256::digest(&*self.client).to_vec(),
        }
        .into()
    }
}

sdam_core::opaque!(Keys, |this| mechanism: this.mechanism);

/// The reason why a SCRAM conversation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ScramError {
    /// The named attribute of a server message is malformed.
    #[error("the server's SCRAM message is malformed at `{0}`")]
    Malformed(&'static str),
    /// The server's nonce does not begin with the client's nonce, or adds no characters to it.
    #[error("the server's SCRAM message does not belong to the client's")]
    Nonce,
    /// The server requests this number of iterations, which is outside the accepted range.
    #[error(
        "the server asks for {0} SCRAM iterations: {MIN_ITERATIONS} to {MAX_ITERATIONS} are \
         accepted"
    )]
    Iterations(u32),
    /// The password contains characters that SASLprep prohibits.
    #[error("the password contains characters that SCRAM-SHA-256 prohibits: set another one")]
    Password,
    /// The server reports this error.
    #[error("the server ends the SCRAM conversation: {0}")]
    Server(Box<str>),
    /// The server did not prove that it knows the user's keys.
    #[error("the server has not proved that it knows the user: it may be another server")]
    Signature,
}

impl From<ScramError> for Error {
    fn from(error: ScramError) -> Self {
        Self::auth(error.to_string())
    }
}

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

fn mac(mechanism: Mechanism, key: &[u8], message: &[u8]) -> Bytes {
    match mechanism {
        Mechanism::ScramSha1 => sum(keyed::<Hmac<Sha1>>(key), message),
        Mechanism::ScramSha256 => sum(keyed::<Hmac<Sha256>>(key), message),
    }
}

fn sum(mac: impl Mac, message: &[u8]) -> Bytes {
    let mac = mac.chain_update(message).finalize();
    mac.into_bytes().to_vec().into()
}

#[expect(clippy::expect_used, reason = "HMAC accepts keys of every length")]
fn keyed<M: KeyInit>(key: &[u8]) -> M {
    M::new_from_slice(key).expect("a key of any length")
}
