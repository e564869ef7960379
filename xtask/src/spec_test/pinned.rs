//! The pinned versions of the official files, and the expected figures of a run of all files.

use super::report::{Report, Totals};
use super::runner::Column;
use crate::Result;

/// A version of the official files.
#[derive(Debug)]
pub(super) struct Pinned {
    /// The description of the version, for the summary.
    pub(super) name: &'static str,
    /// The digest of the files ([`Corpus::digest`](sdam_spec::corpus::Corpus::digest)).
    digest: &'static str,
    totals: Totals,
    /// The number of files that pass without a runtime.
    pure: usize,
    /// The number of files that pass in single-threaded mode.
    scan: usize,
    /// The number of files that pass on each runtime, including the simulated runtime.
    engine: usize,
    /// The total number of runs of tests on deployments: in the column of each real runtime, and in
    /// the simulated column. Not compared if each test runs on every release.
    runs: [usize; 2],
    /// The number of changes to the files, and the number of [undetected](super::leaves::unnoticed)
    /// changes.
    changes: [usize; 2],
}

const PINNED: [Pinned; 2] = [
    Pinned {
        name: "the specifications at 92b3c0b9",
        digest: "9d101233f6c81ac7d916e5ccbafd67c53c6400687fa0d3744585334266a2d2a1",
        totals: Totals { files: 616, tests: 2_092, left_out: 122, stand_ins: 15 },
        pure: 395,
        scan: 368,
        engine: 581,
        runs: [3_490, 11_793],
        changes: [25_804, 7_602],
    },
    Pinned {
        name: "PyMongo 4.20.0, a part of the specifications",
        digest: "f0afbd6838c457af57c25dbd5847e7a4e759244c8c64736b101d22a8cb5394a5",
        totals: Totals { files: 602, tests: 1_941, left_out: 113, stand_ins: 13 },
        pure: 396,
        scan: 370,
        engine: 568,
        runs: [3_251, 11_073],
        changes: [25_620, 7_520],
    },
];

/// Returns the pinned version with this digest.
pub(super) fn find(digest: &str) -> Option<&'static Pinned> {
    PINNED.iter().find(|pinned| pinned.digest == digest)
}

impl Pinned {
    /// Compares the figures of a run of all files with the expected figures.
    ///
    /// # Errors
    /// If the number of files, tests or runs differs, in one column or in all of them.
    pub(super) fn check(&self, report: &Report, every_release: bool) -> Result<()> {
        if report.scope != self.totals {
            return Err(format!(
                "there are {}, expected {}, of {}",
                report.scope, self.totals, self.name
            )
            .into());
        }
        for &column in Column::ALL {
            let Some((passed, ran)) = report.passed(column.name()) else { continue };
            let (files, runs) = match column {
                Column::Pure => (self.pure, 0),
                Column::Scan => (self.scan, 0),
                column => (self.engine, self.runs[usize::from(!column.is_real())]),
            };
            let column = column.name();
            let runs = if every_release { ran } else { runs };
            if (passed, ran) != (files, runs) {
                return Err(format!(
                    "{passed} files have passed in {column}, with {ran} tests on deployments; \
                     expected {files} and {runs}, of {}",
                    self.name
                )
                .into());
            }
        }
        Ok(())
    }

    /// Compares the numbers of changes to the files and of undetected changes with the expected
    /// numbers.
    ///
    /// # Errors
    /// If a number differs. The harness then compares fewer values than before, for example, or
    /// parses files less strictly.
    pub(super) fn check_changes(&self, changes: [usize; 2]) -> Result<()> {
        let [made, unnoticed] = changes;
        println!("of {made} wrong files without a runtime, {unnoticed} are not noticed");
        match self.changes {
            expected if changes == expected => Ok(()),
            [made, unnoticed] => {
                let name = self.name;
                Err(format!("expected {unnoticed} of {made} wrong files, of {name}").into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_spec::corpus::File;
    use serde_json::json;

    use super::super::{choose_suites, report::Cell};
    use super::*;

    #[test]
    fn a_lost_file_test_or_run_is_an_error() {
        let report = |tests: usize, passed: usize| {
            let mut report = Report::default();
            let tests = vec![json!({ "description": "" }); tests];
            let file = File { name: "a".to_owned(), json: json!({ "tests": tests }) };
            report.cover(choose_suites(&["auth".to_owned()]).unwrap()[0], &file);
            report.add("auth", "sim", Cell { passed, ..Cell::default() });
            report
        };
        let pinned = |runs| Pinned {
            name: "the pinned files",
            digest: "",
            totals: Totals { files: 1, tests: 2, left_out: 0, stand_ins: 0 },
            pure: 1,
            scan: 1,
            engine: 1,
            runs: [0, runs],
            changes: [0, 0],
        };
        let check = |report: &Report, runs, every_release| {
            let outcome = pinned(runs).check(report, every_release);
            outcome.map_err(|error| error.to_string())
        };
        assert_eq!(check(&report(2, 1), 0, false), Ok(()));
        assert_eq!(check(&report(2, 1), 5, true), Ok(()));
        let error = check(&report(1, 1), 0, false).unwrap_err();
        assert!(
            error.starts_with("there are 1 files with 1 tests, 0 of them left out; "),
            "{error}"
        );
        let error = "0 files have passed in sim, with 0 tests on deployments; expected 1 and 0, of \
                     the pinned files";
        assert_eq!(check(&report(2, 0), 0, false), Err(error.to_owned()));
        assert!(check(&report(2, 1), 5, false).is_err());
    }
}
