//! The sequence of faults, which depends on a seed alone.

use std::time::Duration;

use sdam_core::rng::Rng;

/// The pause before each fault, and the time until it is healed, in milliseconds: minimum and
/// maximum.
const PAUSE: [u64; 2] = [2_000, 12_000];
const HOLD: [u64; 2] = [1_000, 12_000];

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The primary steps down.
    StepDown,
    /// A server is killed, and started again.
    Kill,
    /// A server is frozen.
    Freeze,
    /// The disk of a server is full, so that it aborts; then there is space, and it starts again.
    FullDisk,
    /// A member is removed from its set, or gets another priority.
    Reconfigure,
    /// All servers get other certificates.
    Certificates,
    /// The SRV record has other hosts, or none.
    Dns,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 7] = [
        Self::StepDown,
        Self::Kill,
        Self::Freeze,
        Self::FullDisk,
        Self::Reconfigure,
        Self::Certificates,
        Self::Dns,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::StepDown => "step-down",
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::FullDisk => "full disk",
            Self::Reconfigure => "reconfigure",
            Self::Certificates => "certificates",
            Self::Dns => "DNS",
        }
    }
}

/// A fault, and when it begins and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The index of the deployment.
    pub(crate) deployment: usize,
    /// A random number, from which the member and the variant are derived.
    pub(crate) choice: usize,
    /// The time since the end of the fault before.
    pub(crate) pause: Duration,
    /// The time until it is healed.
    pub(crate) hold: Duration,
}

/// The endless sequence of faults of some deployments. It depends only on the seed and on the
/// deployments.
pub(crate) struct Schedule {
    rng: Rng,
    /// The kinds of faults, each with the deployments that can have it. None is empty.
    targets: Vec<(Kind, Vec<usize>)>,
}

impl Schedule {
    /// Creates the sequence for deployments, each with the kinds of faults that it can have.
    pub(crate) fn new<'k>(
        seed: u64,
        deployments: impl IntoIterator<Item = (usize, &'k [Kind])>,
    ) -> Self {
        let mut targets = Kind::ALL.map(|kind| (kind, Vec::new())).to_vec();
        for (deployment, kinds) in deployments {
            for (_, own) in targets.iter_mut().filter(|(kind, _)| kinds.contains(kind)) {
                own.push(deployment);
            }
        }
        targets.retain(|(_, own)| !own.is_empty());
        Self { rng: Rng::new(seed), targets }
    }

    fn index(&mut self, length: usize) -> usize {
        self.rng.below(length as u64) as usize
    }

    fn duration(&mut self, [least, most]: [u64; 2]) -> Duration {
        Duration::from_millis(least + self.rng.below(most - least + 1))
    }
}

impl Iterator for Schedule {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        let kind = self.index(self.targets.len());
        let deployment = self.index(self.targets.get(kind)?.1.len());
        let (kind, deployments) = self.targets.get(kind)?;
        let (kind, deployment) = (*kind, *deployments.get(deployment)?);
        let choice = self.rng.next_u64() as usize;
        let (pause, hold) = (self.duration(PAUSE), self.duration(HOLD));
        Some(Fault { kind, deployment, choice, pause, hold })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KINDS: [(usize, &[Kind]); 2] = [(3, &[Kind::Kill]), (7, &Kind::ALL)];

    fn faults(seed: u64) -> Vec<Fault> {
        Schedule::new(seed, KINDS).take(300).collect()
    }

    #[test]
    fn the_faults_depend_on_the_seed_alone() {
        assert_eq!(faults(1), faults(1));
        assert_ne!(faults(1), faults(2));
    }

    #[test]
    fn every_possible_fault_occurs_and_no_other() {
        let seen: BTreeSet<_> = faults(1).iter().map(|own| (own.deployment, own.kind)).collect();
        let possible = KINDS
            .iter()
            .flat_map(|(deployment, kinds)| kinds.iter().map(|kind| (*deployment, *kind)));
        assert_eq!(seen, possible.collect());
    }

    #[test]
    fn every_fault_is_healed_within_its_time() {
        for fault in faults(1) {
            let within = |time: Duration, [least, most]: [u64; 2]| {
                (least..=most).contains(&(time.as_millis() as u64))
            };
            assert!(within(fault.pause, PAUSE) && within(fault.hold, HOLD), "{fault:?}");
        }
    }

    #[test]
    fn without_deployments_there_is_no_fault() {
        assert_eq!(Schedule::new(1, []).next(), None);
    }
}
