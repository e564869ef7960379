//! A hash of all events of a run.

use sdam_core::{rng::mix, time::Instant};

/// Hashes the events of a run, in order.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) hash: u64,
    /// The number of events.
    pub(super) steps: u64,
}

impl Trace {
    pub(super) fn task(&mut self, task: u64) {
        self.add(1, task);
    }

    pub(super) fn time(&mut self, now: Instant) {
        self.add(2, now.as_nanos());
    }

    pub(super) fn delivery(&mut self, socket: u64, length: usize) {
        self.add(3, socket);
        self.add(4, length as u64);
    }

    /// Hashes a message from a server process. The message is hashed before it is encrypted,
    /// because encryption keys are random.
    pub(super) fn message(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.hash = mix(self.hash ^ u64::from_le_bytes(word));
        }
    }

    fn add(&mut self, kind: u64, value: u64) {
        self.steps += 1;
        self.hash = mix(self.hash.wrapping_mul(31) ^ value.wrapping_add(kind << 56));
    }
}
