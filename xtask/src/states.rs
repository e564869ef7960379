//! `cargo xtask states`: every state of small topologies.

use crate::Result;
use crate::cargo::{cargo, run as run_command};

pub(crate) fn run() -> Result<()> {
    // In the profile of the simulation: optimised, and with all checks of the debug build.
    let arguments = ["run", "--quiet", "--profile", "sim", "--package"];
    run_command(cargo().args(arguments).arg("sdam-model"))
}
