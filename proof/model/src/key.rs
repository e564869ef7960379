//! Keys that distinguish states.

use std::hash::Hasher;

use crate::world::World;

impl World {
    /// Returns a hash of all parts of the state that influence later behaviour. The hashes of two
    /// different states are equal with probability 2^-128.
    pub(crate) fn key(&self) -> u128 {
        let mut hasher = Mixer::default();
        self.deployment.write_key(self.now, &mut hasher);
        self.write_services(&mut hasher);
        hasher.key()
    }
}

/// Two independent 64-bit hashes, computed by folded multiplication with different constants.
#[derive(Default)]
struct Mixer([u64; 2]);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let constants = [
            (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03),
            (0xaef1_7502_108e_f2d9, 0x8bb8_4b93_962e_acc9),
        ];
        for (lane, (first, second)) in self.0.iter_mut().zip(constants) {
            let wide = u128::from(*lane ^ word ^ first) * u128::from(second | 1_u64);
            // The addition keeps earlier input in the hash if the product is zero.
            *lane = (wide as u64 ^ (wide >> 64) as u64).wrapping_add(lane.rotate_left(23));
        }
    }

    fn key(&self) -> u128 {
        let [high, low] = self.0;
        u128::from(high) << 64 | u128::from(low)
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (word, byte) in word.iter_mut().zip(chunk) {
                *word = *byte;
            }
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.key() as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        start::Start,
        step::{Failure, MemberStep, OperationError, Reply, Role, Step},
        world::World,
    };

    #[test]
    fn equal_states_have_equal_keys_on_every_path() {
        let found = Step::Member(0, MemberStep::Reply(Reply::member(Role::Primary)));
        let refused = Step::Member(0, MemberStep::Failure(Failure::Command(0)));
        let broken =
            Step::Member(0, MemberStep::Error { error: OperationError::Broken, late: false });
        let key = |history: &[Step]| {
            let mut world = World::new(Start::DISCOVERY).unwrap();
            for step in history {
                world.apply(*step).unwrap();
            }
            world.key()
        };
        assert_eq!(key(&[found, refused]), key(&[found, refused, refused]));
        assert_eq!(key(&[found, refused, found]), key(&[found, refused, found, refused, found]));
        assert_ne!(key(&[found]), key(&[found, refused]));
        assert_ne!(
            key(&[found, refused]),
            key(&[found, broken]),
            "the errors have different stages"
        );
        assert_ne!(
            key(&[found]),
            key(&[found, refused, found]),
            "there may be connections of an earlier generation"
        );
    }
}
