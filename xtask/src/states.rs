//! `cargo xtask states`: every state of small topologies.

use crate::Result;
use crate::args::Args;
use crate::cargo::{cargo, run as run_command};

pub(crate) const USAGE: &str = "\
search the states of small topologies for one that breaks an invariant

usage: cargo xtask states

Takes every step of several alphabets (elections, members, errors, and all of them) in every state
that a topology of three members can reach, breadth first, and prints how many states there are.
A state that breaks an invariant ends the search with a shortest history that leads to it.";

pub(crate) fn run(args: Args) -> Result<()> {
    args.finish()?;
    // In the profile of the simulation: optimised, and with all checks of the debug build.
    let arguments = ["run", "--quiet", "--profile", "sim", "--package"];
    run_command(cargo().args(arguments).arg("sdam-model"))
}
