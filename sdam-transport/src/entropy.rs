//! The source of random bytes for unique identifiers and nonces.

use std::{
    fmt::Debug,
    hash::{BuildHasher as _, RandomState},
};

/// A source of random bytes for identifiers, such as those of sessions and topologies, and for the
/// nonces of authentications.
///
/// These bytes never come from a seed, except in a simulation, because a server cannot distinguish
/// two clients that use the same session id.
///
/// # Contract
///
/// The bytes are unpredictable, and differ from call to call and between any two clients of a
/// deployment. `fill` does not block, and its caller may hold a lock.
pub trait Entropy: Debug + Send + Sync {
    /// Fills `bytes` with random data.
    fn fill(&self, bytes: &mut [u8]);
}

/// Random bytes from the operating system.
///
/// If the system returns an error, the bytes come from the keys of the standard library's hash
/// maps, which are secret and seeded by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if getrandom::fill(bytes).is_err() {
            fill_from_keys(bytes);
        }
    }
}

fn fill_from_keys(bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let random = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        for (byte, random) in chunk.iter_mut().zip(random) {
            *byte = random;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_both_sources_differs_from_call_to_call() {
        let system: fn(&mut [u8]) = |bytes| SystemEntropy.fill(bytes);
        for fill in [system, fill_from_keys] {
            let mut seen = [[false; 256]; 16];
            for _ in 0..16 {
                let mut bytes = [0; 16];
                fill(&mut bytes);
                for (seen, byte) in seen.iter_mut().zip(bytes) {
                    seen[usize::from(byte)] = true;
                }
            }
            let count = |seen: &[bool; 256]| seen.iter().filter(|seen| **seen).count();
            assert!(seen.iter().all(|seen| count(seen) > 8), "too many repetitions");
        }
    }
}
