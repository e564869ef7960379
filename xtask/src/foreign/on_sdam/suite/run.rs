//! Runs tests. Each test has a process of its own and a time limit.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::deployment::Servers;
use super::results::{Outcome, TestResult};
use crate::Result;
use crate::cargo::output;

/// The time limit of a test. The longest takes two minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(480);

/// The maximum number of times that a failing test is run. Several tests have time limits of their
/// own that they exceed on a busy machine.
const RUNS: u32 = 3;

/// The interval between checks of whether the test process has ended.
const POLL: Duration = Duration::from_millis(10);

/// The number of lines to keep from the output of a failed test.
const KEPT_LINES: usize = 12;

/// The tests of one driver.
#[derive(Debug)]
pub(super) struct TestProgram {
    program: PathBuf,
    /// The folder in which the tests run, instead of the folder of the driver under test.
    folder: PathBuf,
}

impl TestProgram {
    pub(super) const fn new(program: PathBuf, folder: PathBuf) -> Self {
        Self { program, folder }
    }

    /// Returns the names of all tests.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let list = output(Command::new(&self.program).arg("--list"))?;
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs a test. If it fails, runs it again, up to the maximum number of times.
    pub(super) fn run_repeatedly(&self, name: &str, servers: &Servers) -> Result<TestResult> {
        let mut run = 1;
        let mut failure = String::new();
        loop {
            servers.tidy()?;
            let mut result = self.run(name, servers)?;
            result.runs = run;
            if result.outcome != Outcome::Failed || run == RUNS {
                if run > 1 && result.outcome == Outcome::Passed {
                    result.message = failure;
                }
                return Ok(result);
            }
            eprintln!("{name} failed in run {run}\n{}", result.message);
            failure = result.message;
            run += 1;
        }
    }

    fn run(&self, name: &str, servers: &Servers) -> Result<TestResult> {
        // The two outputs are captured separately, because libtest prints the name without a line
        // break, and the test may then print that it is skipped.
        let own = std::process::id();
        let outputs = ["out", "err"].map(|end| self.program.with_extension(format!("{own}.{end}")));
        let mut command = Command::new(&self.program);
        command
            .args(["--exact", name, "--test-threads", "1"])
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("MONGODB_URI", servers.uri())
            .env("LOG_UNCAPTURED", "/dev/null")
            .stdin(Stdio::null())
            .stdout(File::create(&outputs[0])?)
            .stderr(File::create(&outputs[1])?);
        let begin = Instant::now();
        let mut child = command.spawn()?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if begin.elapsed() > LIMIT {
                child.kill()?;
                child.wait()?;
                break None;
            }
            thread::sleep(POLL);
        };
        let [report, log] = outputs.map(fs::read);
        let (report, log) = (report?, log?);
        let (report, log) = (String::from_utf8_lossy(&report), String::from_utf8_lossy(&log));
        let passed = status.is_some_and(|status| status.success());
        let mut result = TestResult::of(passed, &report, &log);
        if status.is_none() {
            result.message = format!("it did not end in {LIMIT:?}");
        }
        result.seconds = begin.elapsed().as_secs();
        Ok(result)
    }
}

impl TestResult {
    /// Parses the output of a test: libtest's report and the test's own log.
    fn of(passed: bool, report: &str, log: &str) -> Self {
        let count = |is: fn(&str) -> bool| log.lines().filter(|line| is(line)).count();
        let (cases, skipped) = (count(is_case), count(is_skipped));
        let outcome = match passed && report.contains("\nrunning 1 test") {
            true if skipped > 0 && cases == 0 => Outcome::Skipped,
            true => Outcome::Passed,
            false => Outcome::Failed,
        };
        let message = match outcome {
            Outcome::Passed => String::new(),
            Outcome::Skipped => first(log, is_skipped),
            Outcome::Failed => first(report, |line| line.contains(" panicked at ")),
        };
        Self { outcome, cases, skipped, runs: 1, seconds: 0, message }
    }
}

fn is_case(line: &str) -> bool {
    starts_with(line, "executing ")
}

/// Returns whether the line says that a test or case is skipped. Lines about files that are not
/// deserialized do not count.
fn is_skipped(line: &str) -> bool {
    starts_with(line, "skipping ") && !starts_with(line, "skipping deserializing ")
}

fn starts_with(line: &str, word: &str) -> bool {
    let start = line.get(..word.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Returns up to `KEPT_LINES` lines, beginning with the first line that matches.
fn first(text: &str, matches: impl Fn(&str) -> bool) -> String {
    let lines = text.lines().skip_while(|line| !matches(line));
    lines.take(KEPT_LINES).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::results::{Outcome, TestResult};

    #[test]
    fn a_test_that_says_so_and_runs_no_case_is_skipped() {
        let check = |passed, log: &str, outcome, cases, skipped| {
            let result = TestResult::of(passed, "\nrunning 1 test\n", log);
            assert_eq!((result.outcome, result.cases, result.skipped), (outcome, cases, skipped));
        };
        check(true, "", Outcome::Passed, 0, 0);
        check(true, "Skipping it: no mongos\n", Outcome::Skipped, 0, 1);
        check(true, "Executing a\nskipping b\nExecuting c\n", Outcome::Passed, 2, 1);
        check(true, "Skipping deserializing a\n", Outcome::Passed, 0, 0);
        check(false, "Skipping a\n", Outcome::Failed, 0, 1);
    }

    #[test]
    fn a_run_without_the_test_is_a_failure() {
        let result = TestResult::of(true, "\nrunning 0 tests\n", "");
        assert_eq!(result.outcome, Outcome::Failed);
    }

    #[test]
    fn the_message_of_a_failure_begins_with_the_panic() {
        let report = "\nrunning 1 test\nthread 'a' panicked at src/a.rs:1:1:\nno\n";
        let result = TestResult::of(false, report, "");
        assert_eq!(result.message, "thread 'a' panicked at src/a.rs:1:1:\nno");
    }
}
