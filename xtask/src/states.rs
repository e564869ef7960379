//! `cargo xtask states`: searches the states of small deployments.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::cargo::{cargo, output, run as run_command};

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
    /// Write tests to this file instead, one in each line, in the format of the official SDAM
    /// tests.
    ///
    /// The tests contain every transition of searches of the topology machine: a shortest history
    /// of each state, with each further reply or error. The file takes nearly a gigabyte.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "states"])]
    write_tests: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(file) = &options.write_tests {
        print!("{}", write_tests(file)?);
        return Ok(());
    }
    let mut command = search();
    let largest = options.states.map(|_| LARGEST);
    command.args(options.name.as_deref().or(largest));
    command.args(options.states.map(|states| states.to_string()));
    run_command(&mut command)
}

/// Writes the tests of the topology machine. Returns their number and contents, as one line.
pub(crate) fn write_tests(file: &Path) -> Result<String> {
    // The program may run in another folder.
    output(search().arg("--write-tests").arg(std::path::absolute(file)?))
}

/// Returns the command that runs the program with the searches. It has the simulation's profile,
/// which is optimized but keeps all checks of the debug build.
fn search() -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--profile", "sim", "--package", "sdam-model", "--"]);
    command
}
