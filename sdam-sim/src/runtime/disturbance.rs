//! Behaviour that the contracts of the runtime traits allow, but that runs seldom show.

use std::{collections::BTreeSet, time::Duration};

use sdam_core::rng::Rng;

/// Something that happens at random in a [disturbed](super::Sim::disturb) simulation. The
/// contracts of the runtime traits allow it, but runs seldom show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[derive(strum::Display, strum::VariantArray)]
pub enum Disturbance {
    /// A read returns only a few of the bytes that have arrived.
    #[strum(serialize = "partial read")]
    PartialRead,
    /// A write accepts only a part of the bytes.
    #[strum(serialize = "partial write")]
    PartialWrite,
    /// The bytes of a message arrive in pieces, one after the other.
    #[strum(serialize = "split message")]
    SplitMessage,
    /// A socket is not ready for a read, a write or a flush, and wakes the task at once.
    #[strum(serialize = "busy socket")]
    BusySocket,
    /// A timer is ready later than its deadline.
    #[strum(serialize = "late timer")]
    LateTimer,
    /// A task is polled without a reason.
    #[strum(serialize = "spurious poll")]
    SpuriousPoll,
    /// A task that is ready waits until no other task is ready.
    #[strum(serialize = "task held back")]
    TaskHeldBack,
}

impl Disturbance {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The maximum time by which a timer is late. It is as long as a tick of slow system timers.
    pub const MAX_LATENESS: Duration = Duration::from_millis(16);
}

/// The maximum number of bytes that a partial read returns. It is the length of the header of a
/// message.
const FEW: usize = 16;

/// The number of times that a task is held back. After that, the task is polled even if others are
/// ready, because tasks may wait for each other without time passing.
const PATIENCE: u32 = 64;

/// The choices of a disturbed simulation. By default, nothing is disturbed.
#[derive(Debug)]
pub(super) struct Disturbances {
    rng: Rng,
    enabled: BTreeSet<Disturbance>,
    /// An enabled disturbance occurs once in this many times.
    rarity: u64,
    /// The disturbances that have occurred.
    pub(super) occurred: BTreeSet<Disturbance>,
    /// The task that is held back, and the remaining number of times.
    held_back: Option<(u64, u32)>,
}

impl Default for Disturbances {
    fn default() -> Self {
        let (enabled, occurred) = (BTreeSet::new(), BTreeSet::new());
        Self { rng: Rng::new(0), enabled, rarity: 1, occurred, held_back: None }
    }
}

impl Disturbances {
    /// Enables each disturbance with a probability of one half. All that are enabled occur once in
    /// 4, 12 or 36 times on average.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rarity = [4, 12, 36][rng.below(3) as usize];
        let all = Disturbance::ALL.iter().copied();
        let enabled = all.filter(|_| rng.below(2) == 0).collect();
        Self { rng, enabled, rarity, ..Self::default() }
    }

    /// Returns whether the disturbance occurs now.
    pub(super) fn occurs(&mut self, disturbance: Disturbance) -> bool {
        let occurs = self.enabled.contains(&disturbance) && self.rng.below(self.rarity) == 0;
        if occurs {
            self.occurred.insert(disturbance);
        }
        occurs
    }

    /// Returns the number of bytes that a read returns if `length` bytes are available.
    pub(super) fn read(&mut self, length: usize) -> usize {
        if length > 1 && self.occurs(Disturbance::PartialRead) {
            return 1 + self.below(FEW.min(length - 1));
        }
        length
    }

    /// Returns the number of bytes that a write of `length` bytes accepts.
    pub(super) fn write(&mut self, length: usize) -> usize {
        if length > 1 && self.occurs(Disturbance::PartialWrite) {
            return 1 + self.below(length - 1);
        }
        length
    }

    /// Returns the time by which a timer is late. Short times are as frequent as long ones.
    pub(super) fn lateness(&mut self) -> Duration {
        if !self.occurs(Disturbance::LateTimer) {
            return Duration::ZERO;
        }
        let max = u64::try_from(Disturbance::MAX_LATENESS.as_nanos()).unwrap_or(u64::MAX);
        let digits = self.rng.below(8) as u32;
        Duration::from_nanos(1 + self.rng.below(max / 10_u64.pow(digits)))
    }

    /// Returns whether `task` has to wait, because it is ready together with others.
    pub(super) fn holds_back(&mut self, task: u64) -> bool {
        if let Some((held, left)) = &mut self.held_back
            && *held == task
        {
            *left = left.saturating_sub(1);
            return *left > 0;
        }
        let begins = self.occurs(Disturbance::TaskHeldBack);
        if begins {
            self.held_back = Some((task, PATIENCE));
        }
        begins
    }

    /// Records that `task` is polled.
    pub(super) fn polls(&mut self, task: u64) {
        self.held_back.take_if(|(held, _)| *held == task);
    }

    /// Returns a random number less than `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }
}
