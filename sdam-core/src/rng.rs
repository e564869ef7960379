//! The seeded random number generator, the only source of randomness.

/// A SplitMix64 generator.
///
/// Every random choice of the framework is derived from one seed through such generators, so a
/// single `u64` reproduces a run. They are not suitable for cryptography.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

/// The increment of SplitMix64: 2^64 divided by the golden ratio, as an odd number.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

impl Rng {
    /// Creates a generator whose sequence depends only on `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns a seed from which a new generator continues this generator's sequence.
    pub(crate) const fn seed(&self) -> u64 {
        self.state
    }

    /// Returns the next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// Returns a random number below `bound`, or 0 if `bound` is 0.
    ///
    /// The bias is below `bound / 2^64`, which is negligible for every use here.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Derives an independent generator from this one.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Shuffles `items` uniformly (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

/// Spreads the bits of `state` with the finaliser of SplitMix64.
///
/// This function is public so that a lock-free generator can combine it with an atomic counter.
pub const fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_that_of_splitmix64() {
        // This is the published reference sequence for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        let mut same = Rng::new(rng.seed());
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
        assert_eq!(same.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_returns_every_value_under_its_bound_and_no_other() {
        let mut rng = Rng::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[rng.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (140..=260).contains(count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items = [1, 2, 3, 4, 5, 6, 7, 8];
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, [1, 2, 3, 4, 5, 6, 7, 8]);
        items.sort_unstable();
        assert_eq!(items, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
