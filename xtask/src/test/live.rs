//! Runs the live tests on all combinations of runtimes and servers.

use std::env;
use std::process::Command;
use std::time::Instant;

use sdam_live::Version;

use crate::Result;
use crate::cargo::{built, cargo, root, run as run_command};

/// The package of the live tests.
const PACKAGE: &str = "sdam";

/// A runtime and a server version for the live tests.
pub(super) type Combination = (&'static str, Version);

/// All supported combinations. The server version affects the messages that monitors send, and the
/// runtime affects the transport.
pub(super) const MATRIX: &[Combination] = &[
    ("tokio", Version::V4_2),
    ("tokio", Version::V4_4),
    ("tokio", Version::V5_0),
    ("tokio", Version::V6_0),
    ("smol", Version::V6_0),
    ("async-std", Version::V6_0),
];

/// The combinations that the workspace's own tests, which use tokio and the newest server, do not
/// cover: the other runtimes, and a server without streaming.
pub(super) const COMPLEMENT: &[Combination] =
    &[("tokio", Version::V4_2), ("smol", Version::V6_0), ("async-std", Version::V6_0)];

/// Returns whether live tests must fail if a server is missing.
pub(super) fn is_required() -> bool {
    env::var_os("SDAM_LIVE_REQUIRED").is_some_and(|value| value == "1")
}

/// Returns whether there is a server of this version, which is a failure if `required` is true and
/// there is none. Prints why `tests` are skipped.
fn is_available(version: Version, required: bool, tests: &str) -> Result<bool> {
    match sdam_live::mongod_path(version) {
        Ok(_) => Ok(true),
        Err(unavailable) if required => Err(unavailable.into()),
        Err(unavailable) => {
            println!("SKIPPED {tests}, {unavailable}");
            Ok(false)
        }
    }
}

/// Runs the live tests with each combination, and prints a line for each. If `required` is true, a
/// missing server is a failure.
///
/// # Errors
/// If any combination failed. The others are still run.
pub(super) fn run(combinations: &[Combination], required: bool) -> Result<()> {
    let tests = built(PACKAGE, ["--test", "live"], "live")?;
    let mut bad = Vec::new();
    for &(runtime, version) in combinations {
        let name = format!("{runtime} {version}");
        eprintln!("$ live tests of {name}");
        match is_available(version, required, &name) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                bad.push(format!("{name}: {error}"));
                continue;
            }
        }
        let begin = Instant::now();
        let output = super::patient(&mut Command::new(&tests))
            .args(["--quiet", "--include-ignored"])
            .current_dir(root().join(PACKAGE))
            .env("SDAM_LIVE_RUNTIME", runtime)
            .env("SDAM_LIVE_VERSION", version.to_string())
            .env("SDAM_LIVE_REQUIRED", "1")
            .output()
            .map_err(|error| format!("cannot run {}: {error}", tests.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        // A run without tests proves nothing.
        match passed(&said) {
            Some(tests @ 1..) if output.status.success() => {
                let time = begin.elapsed().as_secs_f64();
                println!("{name:<16} passed {tests} tests in {time:.0} s");
            }
            _ => {
                eprint!("{said}{}", String::from_utf8_lossy(&output.stderr));
                println!("{name:<16} FAILED");
                bad.push(name);
            }
        }
    }
    match &*bad {
        [] => Ok(()),
        bad => Err(format!("combinations that did not pass: {}", bad.join(", ")).into()),
    }
}

/// Runs the official files that need complete deployments, on servers of the given versions. If
/// `required` is true, a missing server is a failure.
///
/// # Errors
/// If a file does not pass.
pub(super) fn run_official(versions: &[Version], required: bool) -> Result<()> {
    let mut columns = Vec::new();
    for &version in versions {
        if is_available(version, required, "official files")? {
            columns.extend(["--runtime".to_owned(), format!("mongod-{version}")]);
        }
    }
    // If no column were named, all other columns would run.
    if columns.is_empty() {
        return Ok(());
    }
    run_command(cargo().args(["xtask", "spec-test"]).args(columns))
}

/// Returns the number of passed tests, from the last line of a test program.
fn passed(output: &str) -> Option<u32> {
    let result =
        output.lines().rev().find_map(|line| line.trim().strip_prefix("test result: ok. "))?;
    result.split_once(" passed")?.0.parse().ok()
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
    fn the_complement_is_part_of_the_matrix() {
        assert!(COMPLEMENT.iter().all(|one| MATRIX.contains(one)));
        let default = ("tokio", Version::default());
        assert!(!COMPLEMENT.contains(&default) && MATRIX.contains(&default));
    }
}
