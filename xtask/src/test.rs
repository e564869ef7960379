//! `cargo xtask test`: runs the tests.

use std::env;
use std::process::Command;
use std::time::Instant;

use sdam_live::Version;

use crate::Result;
use crate::cargo::{EVERYTHING, built, cargo, root, run as run_command};

/// The environment variable that limits how many tests of a program run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run the tests that take longer, instead: the ignored tests; the live tests on every other
    /// runtime and with the oldest server; the official files on the oldest and the newest server,
    /// and on every simulated release; the search of states; 2,000 simulated seeds, and 1,000 with
    /// a detector; the models of shared state; and `PyMongo` and the Node driver with the simulated
    /// deployment.
    #[arg(long)]
    deep: bool,
    /// Do not run the official files on real servers, which take seven minutes.
    #[arg(long, requires = "deep")]
    no_servers: bool,
    /// Run the live tests and the official files on every server, instead. The live tests use tokio
    /// with every version that can be fetched, and the other runtimes with the newest; the official
    /// files use every version. A missing binary is a failure.
    #[arg(long, conflicts_with = "deep")]
    live_matrix: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.live_matrix {
        run_live(MATRIX, true)?;
        return run_official(&Version::FETCHABLE, true);
    }
    if options.deep {
        return deep(!options.no_servers);
    }
    run_command(patient(cargo().arg("test").args(EVERYTHING)))?;
    run_command(cargo().args(["xtask", "spec-test"]))
}

fn deep(with_servers: bool) -> Result<()> {
    let required = is_required();
    timed("ignored tests", || {
        // No doc test is ignored.
        let programs = ["--lib", "--bins", "--tests", "--", "--ignored"];
        run_command(patient(cargo().arg("test").args(EVERYTHING).args(programs)))
    })?;
    timed("live tests", || run_live(COMPLEMENT, required))?;
    if with_servers {
        let servers = [Version::V4_2, Version::V6_0];
        timed("official files on servers", || run_official(&servers, required))?;
    }
    let probing = ["sim", "--seeds", "0..1000", "--detector", "probing"];
    let others: [&[&str]; 7] = [
        &["spec-test", "--every-release"],
        &["states"],
        &["sim"],
        &probing,
        &["loom"],
        &["foreign", "pymongo"],
        &["foreign", "node"],
    ];
    others.into_iter().try_for_each(|words| {
        timed(&words.join(" "), || run_command(cargo().arg("xtask").args(words)))
    })
}

/// Calls `part`, and prints how long it took.
fn timed(name: &str, part: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    part()?;
    println!("{name}: passed in {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Makes a program run six tests at the same time, unless the environment sets another number. The
/// longest tests wait for servers most of the time.
fn patient(tests: &mut Command) -> &mut Command {
    match env::var_os(THREADS) {
        Some(_) => tests,
        None => tests.env(THREADS, "6"),
    }
}

/// The package of the live tests.
const PACKAGE: &str = "sdam";

/// A runtime and a server version for the live tests.
type Combination = (&'static str, Version);

/// All supported combinations. The server version affects the messages that monitors send, and the
/// runtime affects the transport.
const MATRIX: &[Combination] = &[
    ("tokio", Version::V4_2),
    ("tokio", Version::V4_4),
    ("tokio", Version::V5_0),
    ("tokio", Version::V6_0),
    ("smol", Version::V6_0),
    ("async-std", Version::V6_0),
];

/// The combinations that the workspace's own tests, which use tokio and the newest server, do not
/// cover: the other runtimes, and a server without streaming.
const COMPLEMENT: &[Combination] =
    &[("tokio", Version::V4_2), ("smol", Version::V6_0), ("async-std", Version::V6_0)];

/// Returns whether live tests must fail if a server is missing.
fn is_required() -> bool {
    env::var_os("SDAM_LIVE_REQUIRED").is_some_and(|value| value == "1")
}

/// Returns whether a server of this version is available. If none is available, fails if `required`
/// is true, and otherwise prints why `tests` are skipped.
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
fn run_live(combinations: &[Combination], required: bool) -> Result<()> {
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
        let output = patient(&mut Command::new(&tests))
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
fn run_official(versions: &[Version], required: bool) -> Result<()> {
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
