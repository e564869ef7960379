//! `cargo xtask test`: all tests.

mod live;

use sdam_live::Version;

use crate::Result;
use crate::cargo::{EVERYTHING, cargo, run as run_command};

pub(crate) fn run(live_matrix: bool) -> Result<()> {
    if live_matrix {
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
