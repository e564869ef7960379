//! `cargo xtask test`: all tests.

mod live;

use sdam_live::Version;

use crate::Result;
use crate::args::Args;
use crate::cargo::{EVERYTHING, cargo, run as run_command};

pub(crate) const USAGE: &str = "\
run all tests

usage: cargo xtask test [--live-matrix]

Runs the tests and doc tests of the workspace with all features, the live tests once more on every
other runtime and against the oldest server, the official files on every runtime, in
single-threaded mode and against the oldest and the newest server, the search of states, 2,000 simulated seeds, the models of shared state, then
PyMongo against the simulated deployment, and beside sdam against real servers with TLS.

  --live-matrix  only the live tests, on tokio against every version of the server that can be
                 fetched and on the other runtimes against the newest, and the official files
                 against every version; a missing binary is a failure

Live tests use a real mongod and report if they are skipped because none is available;
SDAM_LIVE_REQUIRED=1 makes that a failure.";

pub(crate) fn run(mut args: Args) -> Result<()> {
    let matrix = args.flag("--live-matrix");
    args.finish()?;
    if matrix {
        live::run(live::MATRIX, true)?;
        return live::run_official(&Version::FETCHABLE, true);
    }
    run_command(cargo().arg("test").args(EVERYTHING))?;
    live::run(live::COMPLEMENT, live::is_required())?;
    run_command(cargo().args(["xtask", "spec-test"]))?;
    live::run_official(&[Version::V4_2, Version::V6_0], live::is_required())?;
    run_command(cargo().args(["xtask", "states"]))?;
    run_command(cargo().args(["xtask", "sim"]))?;
    run_command(cargo().args(["xtask", "loom"]))?;
    run_command(cargo().args(["xtask", "foreign", "pymongo"]))?;
    run_command(cargo().args(["xtask", "foreign", "front-door"]))
}
