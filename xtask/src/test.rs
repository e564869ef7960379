//! `cargo xtask test`: runs all tests.

mod live;

use std::env;
use std::process::Command;

use sdam_live::Version;

use crate::Result;
use crate::cargo::{EVERYTHING, cargo, run as run_command};

/// The environment variable that limits how many tests of a program run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

pub(crate) fn run(live_matrix: bool) -> Result<()> {
    if live_matrix {
        live::run(live::MATRIX, true)?;
        return live::run_official(&Version::FETCHABLE, true);
    }
    run_command(patient(cargo().arg("test").args(EVERYTHING)))?;
    live::run(live::COMPLEMENT, live::is_required())?;
    run_command(cargo().args(["xtask", "spec-test"]))?;
    live::run_official(&[Version::V4_2, Version::V6_0], live::is_required())?;
    run_command(cargo().args(["xtask", "states"]))?;
    run_command(cargo().args(["xtask", "sim"]))?;
    run_command(cargo().args(["xtask", "sim", "--seeds", "0..1000", "--detector", "probing"]))?;
    run_command(cargo().args(["xtask", "loom"]))?;
    run_command(cargo().args(["xtask", "foreign", "pymongo"]))
}

/// Makes a program run six tests at the same time, unless the environment sets another number. The
/// longest tests wait for servers most of the time.
fn patient(tests: &mut Command) -> &mut Command {
    match env::var_os(THREADS) {
        Some(_) => tests,
        None => tests.env(THREADS, "6"),
    }
}
