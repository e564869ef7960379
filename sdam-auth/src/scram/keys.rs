use hmac::{Hmac, KeyInit, Mac};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::Mechanism;

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
    /// [`MAX_ITERATIONS`](super::MAX_ITERATIONS). An [`Account`](crate::Account) lets other tasks
    /// run in the meantime.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn derive(mechanism: Mechanism, secret: &str, salt: &[u8], iterations: u32) -> Self {
        let mut derivation = super::Derivation::new(mechanism, secret, salt, iterations);
        loop {
            if let Some(keys) = derivation.advance(u32::MAX) {
                return keys;
            }
        }
    }

    /// Creates the keys from the salted password, which is the result of all iterations.
    pub(super) fn of_salted_password(mechanism: Mechanism, salted: &[u8]) -> Self {
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
    pub(crate) fn is_server_signature(&self, auth_message: &[u8], signature: &[u8]) -> bool {
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
pub(super) fn keyed<M: KeyInit>(key: &[u8]) -> M {
    M::new_from_slice(key).expect("a key of any length")
}
