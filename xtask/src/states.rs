//! `cargo xtask states`: searches the states of small deployments.

use crate::Result;
use crate::cargo::{cargo, run as run_command};

/// The search that has the most states.
const LARGEST: &str = "three servers";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only this search: elections, membership, errors, everything, "membership, named",
    /// "membership, direct", "one server", silence, detection, trial, inline, "inline, two",
    /// balanced, "balanced, inline", srv or "three servers".
    name: Option<String>,
    /// Stop when this number of states is known. Without a named search, this limits the one with
    /// three servers. Five million states take some minutes and a quarter of a gigabyte.
    #[arg(long)]
    states: Option<usize>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = cargo();
    // This profile is optimized, but keeps all checks of the debug build.
    command.args(["run", "--quiet", "--profile=sim", "--package=sdam-model", "--"]);
    let largest = options.states.map(|_| LARGEST);
    command.args(options.name.as_deref().or(largest));
    command.args(options.states.map(|states| states.to_string()));
    run_command(&mut command)
}
