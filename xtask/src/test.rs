//! `cargo xtask test`: runs the tests.

mod live;

use std::env;
use std::process::Command;
use std::time::Instant;

use sdam_live::Version;

use crate::Result;
use crate::cargo::{EVERYTHING, cargo, run as run_command};

/// The environment variable that limits how many tests of a program run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run what takes longer, instead: the ignored tests; the live tests on every other runtime and
    /// with the oldest server; the official files on the oldest and the newest server, and on every
    /// simulated release; the search of states; 2,000 simulated seeds; the models of shared state;
    /// and `PyMongo` and the Node driver with the simulated deployment.
    #[arg(long)]
    deep: bool,
    /// Leave the official files on real servers out, which take seven minutes.
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
        live::run(live::MATRIX, true)?;
        return live::run_official(&Version::FETCHABLE, true);
    }
    if options.deep {
        return deep(!options.no_servers);
    }
    run_command(patient(cargo().arg("test").args(EVERYTHING)))?;
    run_command(cargo().args(["xtask", "spec-test"]))
}

fn deep(with_servers: bool) -> Result<()> {
    let required = live::is_required();
    timed("ignored tests", || {
        // No doc test is ignored.
        let programs = ["--lib", "--bins", "--tests", "--", "--ignored"];
        run_command(patient(cargo().arg("test").args(EVERYTHING).args(programs)))
    })?;
    timed("live tests", || live::run(live::COMPLEMENT, required))?;
    if with_servers {
        let servers = [Version::V4_2, Version::V6_0];
        timed("official files on servers", || live::run_official(&servers, required))?;
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
