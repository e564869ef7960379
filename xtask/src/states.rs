//! `cargo xtask states`: searches all states of small topologies.

use crate::Result;
use crate::cargo::{cargo, run as run_command};

pub(crate) fn run() -> Result<()> {
    // The profile of the simulation: optimized, with all checks of the debug build.
    let arguments = ["run", "--quiet", "--profile", "sim", "--package"];
    run_command(cargo().args(arguments).arg("sdam-model"))
}
