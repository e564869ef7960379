//! Runs of tests. A run is one test of a file in one environment.

use std::collections::BTreeSet;

use crate::{
    host::{Host, TestDeployment},
    requirement::Environment,
};

/// The environments that a host offers to tests.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The environments for which the host [starts deployments](Host::deploy).
    pub environments: Vec<Environment>,
    /// The rule that chooses the environments in which a test runs.
    pub coverage: Coverage,
}

/// The rule that chooses, among the environments that admit a test, those in which the test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All environments.
    Every,
    /// For each kind of deployment, the oldest and the newest release, and the first release after
    /// each [change](ENGINE_CHANGES).
    Sample,
    /// One release for each kind of deployment. The tests of a file take the releases in turn.
    Turns,
    /// All environments, which are real servers in real time. A test with a time limit below a
    /// second is left out. A test that no environment admits is left out, too, because other hosts
    /// run it.
    Real,
}

/// The releases, major and minor, from which on clients behave differently. From 4.4 on, servers
/// stream hello replies and label errors; from 6.0 on, clients order primaries by their election.
pub const ENGINE_CHANGES: [[u32; 2]; 2] = [[4, 4], [6, 0]];

/// A test in one environment.
pub struct Run {
    /// The environment.
    pub environment: Environment,
    check: Check,
}

type Check = Box<dyn FnOnce(&TestDeployment) -> Result<(), String> + Send>;

impl Run {
    pub(crate) fn new(
        environment: Environment,
        check: impl FnOnce(&TestDeployment) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self { environment, check: Box::new(check) }
    }

    /// Runs the test on a new deployment.
    ///
    /// # Errors
    ///
    /// If a result differs from the expected one. The error names the environment.
    pub fn on(self, host: &Host) -> Result<(), String> {
        let outcome = (host.deploy)(&self.environment).and_then(|deployment| {
            let outcome = (self.check)(&deployment);
            deployment.check_messages().and(outcome)
        });
        outcome.map_err(|error| format!("[{}] {error}", self.environment))
    }
}

sdam_core::opaque!(Run, |this| environment: this.environment);

impl Offer {
    /// Returns whether tests that no environment admits may be left out.
    pub(crate) fn is_partial(&self) -> bool {
        self.coverage == Coverage::Real
    }

    /// Returns the environments in which a test runs. `turn` is a number that differs between the
    /// tests of a file. `has_short_limit` tells whether the test has a time limit below a second.
    ///
    /// # Errors
    ///
    /// If no environment admits the test, unless the offer is partial.
    pub(crate) fn choose(
        &self,
        turn: usize,
        has_short_limit: bool,
        admits: impl Fn(&Environment) -> bool,
    ) -> Result<Vec<Environment>, String> {
        let mut admitted: Vec<_> =
            self.environments.iter().copied().filter(|own| admits(own)).collect();
        if admitted.is_empty() && !self.is_partial() {
            return Err("no environment meets the requirements".to_owned());
        }
        match self.coverage {
            Coverage::Sample => sample(&mut admitted),
            Coverage::Turns => take_turns(turn, &mut admitted),
            Coverage::Real if has_short_limit => admitted.clear(),
            Coverage::Every | Coverage::Real => {}
        }
        Ok(admitted)
    }
}

/// Keeps those environments that [`Coverage::Sample`] uses.
fn sample(admitted: &mut Vec<Environment>) {
    let era = |own: &Environment| {
        let is_since = |change: &&[u32; 2]| own.release[..2] >= change[..];
        (own.kind, own.authentication, ENGINE_CHANGES.iter().filter(is_since).count())
    };
    admitted.sort_unstable();
    let mut kept = BTreeSet::new();
    for (index, own) in admitted.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| era(&admitted[before]));
        let after = admitted.get(index + 1).map(|after| (after.kind, after.authentication));
        if before != Some(era(own)) || after != Some((own.kind, own.authentication)) {
            kept.insert(*own);
        }
    }
    admitted.retain(|own| kept.contains(own));
}

/// Keeps those environments that [`Coverage::Turns`] uses.
fn take_turns(turn: usize, admitted: &mut Vec<Environment>) {
    admitted.sort_unstable();
    let kinds = admitted.chunk_by(|a, b| a.kind == b.kind).enumerate();
    *admitted = kinds.map(|(number, own)| own[(turn + number) % own.len()]).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::Kind;

    fn environments(kind: Kind, minors: &[[u32; 2]]) -> Vec<Environment> {
        let release = |[major, minor]: &[u32; 2]| [*major, *minor, 5];
        let environment = |own| Environment { kind, release: release(own), authentication: false };
        minors.iter().map(environment).collect()
    }

    #[test]
    fn a_sample_has_the_oldest_and_newest_release_of_a_kind_and_the_first_of_each_era() {
        let all = [[4, 2], [4, 4], [5, 0], [6, 0], [7, 0], [8, 0]];
        let check = |admitted: &[[u32; 2]], expected: &[[u32; 2]]| {
            let offered = [Kind::Single, Kind::Sharded].map(|kind| environments(kind, &all));
            let offer = Offer { environments: offered.concat(), coverage: Coverage::Sample };
            let is_admitted =
                |own: &Environment| admitted.contains(&[own.release[0], own.release[1]]);
            let chosen = offer.choose(0, true, is_admitted).unwrap();
            let sampled = [Kind::Single, Kind::Sharded].map(|kind| environments(kind, expected));
            assert_eq!(chosen, sampled.concat());
        };
        check(&all, &[[4, 2], [4, 4], [6, 0], [8, 0]]);
        check(&all[..3], &[[4, 2], [4, 4], [5, 0]]);
        check(&all[3..5], &[[6, 0], [7, 0]]);
        check(&all[4..5], &[[7, 0]]);
    }

    #[test]
    fn each_kind_has_its_turn_with_each_release() {
        let offered =
            [Kind::Single, Kind::Sharded].map(|kind| environments(kind, &[[4, 2], [8, 0]]));
        let [old_single, new_single] = [0, 1].map(|index| offered[0][index]);
        let [old_sharded, new_sharded] = [0, 1].map(|index| offered[1][index]);
        let offer = Offer { environments: offered.concat(), coverage: Coverage::Turns };
        assert_eq!(offer.choose(0, true, |_| true), Ok(vec![old_single, new_sharded]));
        assert_eq!(offer.choose(1, true, |_| true), Ok(vec![new_single, old_sharded]));
        assert_eq!(
            offer.choose(1, true, |own| own.release[0] == 4),
            Ok(vec![old_single, old_sharded])
        );
    }

    #[test]
    fn tests_with_short_limits_do_not_run_on_real_servers() {
        let environments = environments(Kind::Single, &[[6, 0]]);
        let offer = Offer { environments: environments.clone(), coverage: Coverage::Real };
        assert_eq!(offer.choose(0, false, |_| true), Ok(environments));
        assert_eq!(offer.choose(0, true, |_| true), Ok(Vec::new()));
        assert_eq!(offer.choose(0, false, |_| false), Ok(Vec::new()));
        let offer = Offer { coverage: Coverage::Every, ..offer };
        assert!(offer.choose(0, false, |_| false).is_err());
    }
}
