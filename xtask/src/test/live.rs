//! Runs the live tests on all combinations of runtimes and servers.

use std::env;
use std::fmt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sdam_live::Version;

use crate::Result;
use crate::cargo::{built, cargo, root, run as run_command};

/// The package of the live tests.
const PACKAGE: &str = "sdam";

/// A runtime and a server version for the live tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Combination {
    runtime: &'static str,
    version: Version,
}

/// The outcome of one combination.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed {
        tests: u32,
        time: Duration,
    },
    Failed,
    /// The combination was not tested, because no server is available. The string is the reason.
    Skipped(String),
}

/// All supported combinations. The server version affects the messages that monitors send, and the
/// runtime affects the transport.
pub(super) const MATRIX: &[Combination] = &[
    Combination::new("tokio", Version::V4_2),
    Combination::new("tokio", Version::V4_4),
    Combination::new("tokio", Version::V5_0),
    Combination::new("tokio", Version::V6_0),
    Combination::new("smol", Version::V6_0),
    Combination::new("async-std", Version::V6_0),
];

/// The combinations that the workspace's own tests, which use tokio and the newest server, do not
/// cover: the other runtimes, and a server without streaming.
pub(super) const COMPLEMENT: &[Combination] = &[
    Combination::new("tokio", Version::V4_2),
    Combination::new("smol", Version::V6_0),
    Combination::new("async-std", Version::V6_0),
];

impl Combination {
    const fn new(runtime: &'static str, version: Version) -> Self {
        Self { runtime, version }
    }

    /// Runs `tests`, the program with the live tests.
    fn run(self, tests: &Path) -> Result<Outcome> {
        if let Err(unavailable) = sdam_live::mongod_path(self.version) {
            return Ok(Outcome::Skipped(unavailable.to_string()));
        }
        let begin = Instant::now();
        let output = super::patient(&mut Command::new(tests))
            .args(["--quiet", "--include-ignored"])
            .current_dir(root().join(PACKAGE))
            .env("SDAM_LIVE_RUNTIME", self.runtime)
            .env("SDAM_LIVE_VERSION", self.version.to_string())
            .env("SDAM_LIVE_REQUIRED", "1")
            .output()
            .map_err(|error| format!("cannot run {}: {error}", tests.display()))?;
        let outcome = outcome_of(&output, begin.elapsed());
        if outcome == Outcome::Failed {
            eprint!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(outcome)
    }
}

/// Returns whether live tests must fail if a server is missing.
pub(super) fn is_required() -> bool {
    env::var_os("SDAM_LIVE_REQUIRED").is_some_and(|value| value == "1")
}

/// Runs the live tests with each combination, and prints a line for each. If `required` is true, a
/// missing server is a failure.
///
/// # Errors
/// If any combination failed. The others are still run.
pub(super) fn run(combinations: &[Combination], required: bool) -> Result<()> {
    let tests = built(PACKAGE, ["--test", "live"], "live")?;
    let mut bad = 0;
    for combination in combinations {
        eprintln!("$ live tests of {combination}");
        let outcome = combination.run(&tests)?;
        println!("{combination:<16} {outcome}");
        bad += u32::from(!outcome.is_acceptable(required));
    }
    match bad {
        0 => Ok(()),
        bad => Err(format!("{bad} of {} combinations did not pass", combinations.len()).into()),
    }
}

/// Runs the official files that need complete deployments, on servers of the given versions. If
/// `required` is true, a missing server is a failure.
///
/// # Errors
/// If a file does not pass.
pub(super) fn run_official(versions: &[Version], required: bool) -> Result<()> {
    let mut command = cargo();
    command.args(["xtask", "spec-test"]);
    let mut found = 0;
    for version in versions {
        match sdam_live::mongod_path(*version) {
            Err(unavailable) if !required => {
                println!("SKIPPED official files, {unavailable}");
            }
            _ => {
                found += 1;
                command.args(["--runtime", &format!("mongod-{version}")]);
            }
        }
    }
    // If no column were named, all other columns would run.
    if found == 0 {
        return Ok(());
    }
    run_command(&mut command)
}

impl Outcome {
    fn is_acceptable(&self, required: bool) -> bool {
        match self {
            Self::Passed { .. } => true,
            Self::Failed => false,
            Self::Skipped(_) => !required,
        }
    }
}

/// Returns the outcome of a run. A run without tests counts as failed, because it proves nothing.
fn outcome_of(output: &Output, time: Duration) -> Outcome {
    let passed = passed(&String::from_utf8_lossy(&output.stdout));
    match passed {
        Some(tests) if tests > 0 && output.status.success() => Outcome::Passed { tests, time },
        _ => Outcome::Failed,
    }
}

/// Returns the number of passed tests, from the last line of a test program.
fn passed(output: &str) -> Option<u32> {
    let result = output.lines().rev().find_map(|line| {
        let line = line.trim();
        line.strip_prefix("test result: ok. ")
    })?;
    result.split_once(" passed")?.0.parse().ok()
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.runtime, self.version))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { tests, time } => {
                write!(f, "passed {tests} tests in {:.0} s", time.as_secs_f64())
            }
            Self::Failed => f.write_str("FAILED"),
            Self::Skipped(reason) => write!(f, "SKIPPED, no mongod is available: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_successful_run_with_tests_counts() {
        let check = |output: &str, expected| assert_eq!(passed(output), expected, "{output}");
        check(
            "running 7 tests\n.......\n\
             test result: ok. 7 passed; 0 failed; 0 ignored; finished in 30.12s\n\n",
            Some(7),
        );
        check("test result: FAILED. 6 passed; 1 failed; 0 ignored\n", None);
        check("error: could not compile\n", None);
        check("test result: ok. 0 passed; 0 failed\n", Some(0));
    }

    #[test]
    fn a_skipped_combination_fails_only_if_servers_are_required() {
        let skipped = Outcome::Skipped("no pip".to_owned());
        assert!(skipped.is_acceptable(false));
        assert!(!skipped.is_acceptable(true));
        assert!(!Outcome::Failed.is_acceptable(false));
    }

    #[test]
    fn the_complement_is_part_of_the_matrix() {
        assert!(COMPLEMENT.iter().all(|one| MATRIX.contains(one)));
        let default = Combination::new("tokio", Version::default());
        assert!(!COMPLEMENT.contains(&default) && MATRIX.contains(&default));
    }
}
