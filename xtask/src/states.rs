//! `cargo xtask states`: searches the states of small deployments.

use crate::Result;
use crate::cargo::{cargo, run as run_command};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only this search: elections, membership, "membership, named", "membership, direct",
    /// errors, "one server", silence, trial, inline, "inline, two", balanced, "balanced, inline" or
    /// srv.
    name: Option<String>,
    /// Stop the named search when this number of states is known. Five million states take some
    /// minutes and a quarter of a gigabyte.
    #[arg(long, requires = "name")]
    states: Option<usize>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = cargo();
    // This profile is optimized, but keeps all checks of the debug build.
    command.args(["run", "--quiet", "--profile=sim", "--package=sdam-model", "--"]);
    command.args(&options.name);
    command.args(options.states.map(|states| states.to_string()));
    run_command(&mut command)
}
