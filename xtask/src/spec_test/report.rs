//! The report, which consists of a table, a list of failures, and a summary line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sdam_spec::corpus::File;
use sdam_spec::requirement::{Environment, Kind};
use sdam_spec::suite::Suite;
use serde_json::json;

use crate::Result;

/// The outcome of one suite in one column of the table.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub(crate) passed: usize,
    /// The files that passed. If the tests of a file need deployments, the file is listed with the
    /// environments in which they ran.
    pub(crate) ran: Vec<(String, Vec<Environment>)>,
    /// The failed files, each with its first difference from the expected results.
    pub(crate) failed: Vec<(String, String)>,
    /// Files that were not run.
    pub(crate) skipped: Vec<String>,
}

impl Cell {
    /// Returns the number of times that a test ran on a deployment.
    fn runs(&self) -> usize {
        self.ran.iter().map(|(_, environments)| environments.len()).sum()
    }

    /// Returns the numbers of passed, failed and skipped files.
    fn figures(&self) -> [usize; 3] {
        [self.passed, self.failed.len(), self.skipped.len()]
    }
}

/// The numbers of distinct files and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) files: usize,
    pub(crate) tests: usize,
    /// The number of tests that are never run.
    pub(crate) left_out: usize,
    /// The number of files whose verdict depends on code of the tests that replaces parts of a
    /// driver.
    pub(crate) stand_ins: usize,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, tests, left_out, stand_ins } = self;
        write!(f, "{files} files with {tests} tests, {left_out} of them left out")?;
        write!(f, "; in {stand_ins} of the files, the tests stand in for a driver")
    }
}

/// The outcome of all suites.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The numbers of files and tests, each counted once for all columns.
    pub(crate) scope: Totals,
    suites: Vec<&'static str>,
    runtimes: Vec<&'static str>,
    cells: Vec<(&'static str, &'static str, Cell)>,
    /// The tests that are never run, with one line for each file and reason.
    left_out: Vec<String>,
    /// The files whose verdict depends on code of the tests that replaces parts of a driver.
    stand_ins: BTreeSet<String>,
}

impl Report {
    /// Adds the numbers of tests and of left-out tests in a file, with the reasons for leaving
    /// tests out.
    pub(crate) fn cover(&mut self, suite: &Suite, file: &File) {
        let mut reasons = BTreeMap::<_, Vec<_>>::new();
        for (test, reason) in (suite.left_out)(&file.json) {
            reasons.entry(reason).or_default().push(test);
        }
        // In some formats, each file is one test.
        let total = file.json["tests"].as_array().map_or(1, Vec::len);
        if (suite.stands_in)(&file.json) {
            self.stand_ins.insert(format!("{}/{}", suite.name(), file.name));
        }
        let suite = suite.name();
        self.scope.stand_ins = self.stand_ins.len();
        self.scope.files += 1;
        self.scope.tests += total;
        self.scope.left_out += reasons.values().map(Vec::len).sum::<usize>();
        for (reason, tests) in reasons {
            let which = if tests.len() == total {
                format!("all {total} tests")
            } else {
                format!("{} of {total} tests ({})", tests.len(), tests.join("; "))
            };
            let line = format!("LEFT OUT {suite}/{}: {reason}: {which}", file.name);
            self.left_out.push(line);
        }
    }

    pub(crate) fn add(&mut self, suite: &'static str, runtime: &'static str, cell: Cell) {
        if !self.suites.contains(&suite) {
            self.suites.push(suite);
        }
        if !self.runtimes.contains(&runtime) {
            self.runtimes.push(runtime);
        }
        self.cells.push((suite, runtime, cell));
    }

    /// Returns the cells that contain at least one file.
    fn cells(&self) -> impl Iterator<Item = &(&'static str, &'static str, Cell)> {
        self.cells.iter().filter(|(.., cell)| cell.figures() != [0; 3])
    }

    /// Returns the numbers of passed, failed and skipped files.
    fn totals(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.cells.iter().map(|(.., cell)| cell.figures()[index]).sum())
    }

    /// Returns the number of files that passed in a column, and how many times a test ran on a
    /// deployment there; `None` if there is no such column.
    pub(crate) fn passed(&self, runtime: &str) -> Option<(usize, usize)> {
        let cells = self.cells.iter().filter(|(_, own, _)| *own == runtime);
        cells.map(|(.., cell)| (cell.passed, cell.runs())).reduce(|a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// Returns the summary line: the numbers of results in all columns, the origin of the files,
    /// and the numbers of files and tests.
    pub(crate) fn summary(&self, origin: &str) -> String {
        let [passed, failed, skipped] = self.totals();
        let scope = &self.scope;
        format!("spec-test: {passed} passed, {failed} failed, {skipped} skipped; {scope}; {origin}")
    }

    /// Checks that at least one file was run and that all files passed.
    ///
    /// # Errors
    /// If no file was run, or if any file failed.
    pub(crate) fn verdict(&self) -> Result<()> {
        match self.totals() {
            [0, 0, 0] => Err("no test was selected".into()),
            [_, 0, 0] => Ok(()),
            _ => Err("not every specification test passed".into()),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let result = |(suite, runtime, cell): &(&str, &str, Cell)| {
            let ([passed, failed, skipped], runs) = (cell.figures(), cell.runs());
            json!({
                "suite": suite, "runtime": runtime, "runs": runs,
                "passed": passed, "failed": failed, "skipped": skipped,
            })
        };
        let results: Vec<_> = self.cells().map(result).collect();
        format!("{:#}\n", json!({ "results": results }))
    }

    /// Returns the runtimes and the deployments on which each file of `suite` ran.
    fn places(&self, suite: &str) -> BTreeMap<&str, (Vec<&'static str>, BTreeSet<Environment>)> {
        let mut places: BTreeMap<_, (Vec<_>, BTreeSet<_>)> = BTreeMap::new();
        for (_, runtime, cell) in self.cells().filter(|(own, ..)| *own == suite) {
            let ran = cell.ran.iter();
            for (file, environments) in ran.filter(|(_, environments)| !environments.is_empty()) {
                let (runtimes, all) = places.entry(&**file).or_default();
                runtimes.push(*runtime);
                all.extend(environments);
            }
        }
        places
    }

    /// Writes the deployments on which each file ran, for all files that need deployments. A file
    /// that ran on no deployment is in the list of failures.
    fn fmt_places(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for suite in &self.suites {
            for (file, (runtimes, environments)) in self.places(suite) {
                let name = format!("{suite}/{file}");
                let mark = if self.stand_ins.contains(&name) { " (with a stand-in)" } else { "" };
                write!(f, "{name}{mark} [{}]:", runtimes.join(", "))?;
                for &kind in Kind::ALL {
                    let own = environments.iter().filter(|it| it.kind == kind);
                    let mut own: Vec<_> = own.map(Environment::short_release).collect();
                    own.dedup();
                    if !own.is_empty() {
                        write!(f, " {kind} {};", own.join(" "))?;
                    }
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.suites.iter().map(|suite| suite.len()).max().unwrap_or(0);
        write!(f, "{:width$}", "passed/failed/skipped")?;
        for runtime in &self.runtimes {
            write!(f, "  {runtime:>10}")?;
        }
        writeln!(f)?;
        for suite in &self.suites {
            write!(f, "{suite:width$}")?;
            for runtime in &self.runtimes {
                let cell = self.cells().find(|(own, on, _)| own == suite && on == runtime);
                let figures = cell.map_or("-".to_owned(), |(.., cell)| {
                    cell.figures().map(|figure| figure.to_string()).join("/")
                });
                write!(f, "  {figures:>10}")?;
            }
            writeln!(f)?;
        }
        write!(f, "{:width$}", "runs of tests on deployments")?;
        for runtime in &self.runtimes {
            let (_, runs) = self.passed(runtime).unwrap_or_default();
            write!(f, "  {runs:>10}")?;
        }
        writeln!(f)?;
        self.fmt_places(f)?;
        for line in &self.left_out {
            writeln!(f, "{line}")?;
        }
        for (suite, runtime, cell) in self.cells() {
            for (file, difference) in &cell.failed {
                writeln!(f, "FAILED {suite}/{file} [{runtime}]: {difference}")?;
            }
            for file in &cell.skipped {
                writeln!(f, "SKIPPED {suite}/{file} [{runtime}]")?;
            }
        }
        Ok(())
    }
}
