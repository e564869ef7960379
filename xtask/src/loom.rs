//! `cargo xtask loom`: every interleaving of the threads in the loom models.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::args::Args;
use crate::cargo::{cargo, root, run as run_command};

pub(crate) const USAGE: &str = "\
run models of shared state through every interleaving of threads

usage: cargo xtask loom [NAME]

Builds sdam, sdam-events and sdam-pool on the atomics and locks of loom, in target/loom, and runs
their models: checks, control, lanes, publication, shutdown, waiters, queue and those of the pool. A model fails if some
interleaving breaks its assertions or deadlocks. Prints the number of interleavings.
NAME limits the run to models whose names begin with it, such as control.

The assumptions about arc-swap, event-listener and futures' AtomicWaker, which loom cannot check,
are documented in src/sync/stand_in.rs of both crates. `cargo xtask mutants` shows what each model
finds.";

pub(crate) fn run(mut args: Args) -> Result<()> {
    let name = args.positional();
    args.finish()?;
    let name = name.unwrap_or_default();
    run_command(models(&root(), &["sdam-events", "sdam-pool", "sdam"], &name).arg("--show-output"))
}

/// Returns a command that builds the models of some crates of a workspace and runs those whose
/// names begin with `name`. Arguments that are added to it go to the test program.
pub(crate) fn models(workspace: &Path, crates: &[&str], name: &str) -> Command {
    let mut command = cargo();
    command
        .current_dir(workspace)
        .env("RUSTFLAGS", "--cfg sdam_loom --cap-lints=warn")
        .args(["test", "--quiet", "--profile", "loom", "--lib"])
        .args(crates.iter().flat_map(|one| ["--package", one]))
        .arg("--no-default-features")
        .arg("--target-dir")
        .arg(root().join("target/loom"))
        // The unit tests beside them need ordinary atomics.
        .args(["--", &format!("models::{name}")]);
    command
}
