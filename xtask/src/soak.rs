//! `cargo xtask soak`: runs clients of real servers with random faults for hours.

use crate::Result;
use crate::cargo::{cargo, run as run_command};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run for this time.
    #[arg(long, default_value_t = 720)]
    minutes: u32,
    /// Start this many deployments. Of five, two are standalones, one is a set of one member and two
    /// are sets of three.
    #[arg(long, default_value_t = 20)]
    deployments: u32,
    /// Start this many clients. One in four is opened and ended all the time.
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// Derive the faults from this number.
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { minutes, deployments, clients, seed } = options;
    let mut command = cargo();
    // This profile is optimized, but keeps all checks of the debug build.
    command.args(["run", "--quiet", "--profile=sim", "--package=sdam-soak", "--"]);
    command.args([minutes, deployments, clients, seed].map(u32::to_string));
    run_command(&mut command)
}
