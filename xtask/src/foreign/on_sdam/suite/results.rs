//! Test results, which are stored between runs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use sdam_core::names;
use serde::{Deserialize, Serialize};

use super::deployment::Deployment;
use crate::Result;
use crate::foreign::on_sdam::driver::{Variant, build_folder};

names! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(super) enum Outcome {
        Passed = "passed",
        Failed = "failed",
        Skipped = "skipped",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct TestResult {
    pub(super) outcome: Outcome,
    /// The number of cases in official files that were run.
    pub(super) cases: usize,
    /// The number of files and cases that were skipped.
    pub(super) skipped: usize,
    /// The number of times that the test was run to get this result.
    pub(super) runs: u32,
    pub(super) seconds: u64,
    pub(super) message: String,
}

/// The results of one driver on one deployment, keyed by test name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Results(pub(super) BTreeMap<String, TestResult>);

/// The numbers of tests with each outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    passed: usize,
    failed: usize,
    skipped: usize,
    cases: usize,
}

impl Results {
    /// Reads the results of earlier runs.
    pub(super) fn load(variant: Variant, deployment: Deployment) -> Result<Self> {
        let Ok(text) = fs::read_to_string(path(variant, deployment)) else {
            return Ok(Self::default());
        };
        Ok(serde_json::from_str(&text)?)
    }

    /// Writes the results to the file from which [`Results::load`] reads them.
    pub(super) fn store(&self, variant: Variant, deployment: Deployment) -> Result<()> {
        let path = path(variant, deployment);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        Ok(fs::write(path, serde_json::to_string_pretty(self)?)?)
    }

    pub(super) fn total(&self) -> Total {
        self.total_of(|_| true)
    }

    /// Counts the tests whose names satisfy `counts`.
    pub(super) fn total_of(&self, counts: impl Fn(&str) -> bool) -> Total {
        let mut total = Total::default();
        for (_, result) in self.0.iter().filter(|(name, _)| counts(name)) {
            match result.outcome {
                Outcome::Passed => total.passed += 1,
                Outcome::Failed => total.failed += 1,
                Outcome::Skipped => total.skipped += 1,
            }
            total.cases += result.cases;
        }
        total
    }
}

/// Returns the number of tests that pass with the published driver, but fail or are skipped with
/// the overlaid driver.
pub(super) fn lost(published: &Results, overlaid: &Results) -> usize {
    let passes = |result: &TestResult| result.outcome == Outcome::Passed;
    let published = published.0.iter();
    published
        .filter(|(name, result)| {
            passes(result) && overlaid.0.get(*name).is_some_and(|result| !passes(result))
        })
        .count()
}

impl Total {
    pub(super) const fn is_empty(self) -> bool {
        self.passed + self.failed + self.skipped == 0
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, cases } = self;
        write!(f, "{passed} | {failed} | {skipped} | {cases}")
    }
}

fn path(variant: Variant, deployment: Deployment) -> PathBuf {
    let name = format!("{}-{deployment}.json", variant.as_str());
    build_folder().join("results").join(name)
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Results, TestResult, lost};

    fn results(all: &[(&str, Outcome)]) -> Results {
        let results = all.iter().map(|(name, outcome)| {
            let message = String::new();
            let result = TestResult {
                outcome: *outcome,
                cases: 3,
                skipped: 1,
                runs: 2,
                seconds: 4,
                message,
            };
            ((*name).to_owned(), result)
        });
        Results(results.collect())
    }

    #[test]
    fn a_test_is_lost_if_it_passes_in_the_published_driver_only() {
        use Outcome::{Failed, Passed, Skipped};
        let published = [("a", Passed), ("b", Passed), ("c", Passed), ("d", Failed), ("e", Passed)];
        let overlaid = [("a", Passed), ("b", Failed), ("c", Skipped), ("d", Failed)];
        assert_eq!(lost(&results(&published), &results(&overlaid)), 2);
    }
}
