//! `cargo xtask sim`: random faults in simulated worlds.

use crate::Result;
use crate::args::Args;
use crate::cargo::{cargo, run as run_command};

pub(crate) const USAGE: &str = "\
run simulated deployments through random faults

usage: cargo xtask sim [--seeds A..B] [--scenario NAME] [--once] [--digest FILE]

Runs each seed of 0..2000, or of A..B (a single number is one seed), twice, with oracles watching
every step, and compares the runs. Scenarios are random (the default), failover, partition, flapping
and, for single-threaded clients, scan. The stored failures in sdam-sim/regressions run first.

The faults of a failing seed are minimized, printed with a timeline of events, and stored as a
regression. --once runs each seed only once. --digest writes a line for each seed into FILE: the
seed, a hash of its events and a hash of its simulation. Equal files before and after a change show
that it changes nothing.";

pub(crate) fn run(mut args: Args) -> Result<()> {
    let once = args.flag("--once");
    let mut words = Vec::new();
    for name in ["--seeds", "--scenario", "--digest"] {
        if let Some(value) = args.option(name)? {
            words.extend([name.to_owned(), value]);
        }
    }
    args.finish()?;
    if once {
        words.push("--once".to_owned());
    }
    // In a separate profile: optimised, and with all checks of the debug build.
    let arguments = [
        "run",
        "--quiet",
        "--profile",
        "sim",
        "--package",
        "sdam-chaos",
        "--",
    ];
    run_command(cargo().args(arguments).args(words))
}
