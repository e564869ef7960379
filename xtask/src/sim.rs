//! `cargo xtask sim`: runs simulated deployments with random faults.

use crate::Result;
use crate::cargo::{cargo, run as run_command};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run these seeds; a single number is one seed.
    #[arg(long, value_name = "A..B", default_value = "0..2000")]
    seeds: String,
    /// Run `random`, `failover`, `partition`, `flapping` or, for single-threaded clients, `scan`.
    #[arg(long, default_value = "random")]
    scenario: String,
    /// Run each seed only once.
    #[arg(long)]
    once: bool,
    /// Write a line for each seed into this file: the seed, a hash of its events and a hash of its
    /// simulation. Equal files before and after a code change show that the behaviour is unchanged.
    #[arg(long, value_name = "FILE")]
    digest: Option<String>,
    /// Instead, freeze or cut off the primary of a disturbed set in each seed, and print how soon a
    /// client with this detector (`none` or `probing`) abandons the primary. May be repeated.
    #[arg(long, value_name = "NAME")]
    detector: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = cargo();
    // This profile is optimized, but keeps all checks of the debug build.
    command.args(["run", "--quiet", "--profile=sim", "--package=sdam-chaos", "--"]);
    command.args(["--seeds", &options.seeds, "--scenario", &options.scenario]);
    command.args(options.once.then_some("--once"));
    command.args(options.detector.iter().flat_map(|name| ["--detector", name]));
    command.args(options.digest.iter().flat_map(|file| ["--digest", file]));
    run_command(&mut command)
}
