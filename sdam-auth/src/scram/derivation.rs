use hmac::Mac;
use zeroize::Zeroizing;

use super::{
    Mechanism,
    keys::{Keys, keyed},
};

/// An incremental derivation of keys (RFC 5802: `Hi`).
///
/// This is PBKDF2 with a derived key that is as long as the hash, so only one block is needed.
pub(crate) enum Derivation {
    Sha1(Block<hmac::Hmac<sha1::Sha1>>),
    Sha256(Block<hmac::Hmac<sha2::Sha256>>),
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
