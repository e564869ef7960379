//! `cargo xtask loom`: runs the loom models through every interleaving of their threads.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::cargo::{cargo, root, run as run_command};

pub(crate) fn run(name: &str) -> Result<()> {
    run_command(models(&root(), &["sdam-events", "sdam-pool", "sdam"], name).arg("--show-output"))
}

/// Returns a command that builds the loom models of `crates` in a workspace, and runs those whose
/// names begin with `name`. Arguments added to the command are passed to the test program.
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
        // Run only the models, because the unit tests in these files need ordinary atomics.
        .args(["--", &format!("models::{name}")]);
    command
}
