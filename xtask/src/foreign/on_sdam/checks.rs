//! The short checks and the measurements. Both are parts of one program, which can be built with
//! either driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::driver::{Variant, own_folder, target_folder};
use super::tree::Tree;
use crate::Result;
use crate::cargo::{cargo, root, run as run_command};

/// The name of the program.
const PROGRAM: &str = "driver-checks";

/// Builds the program with one of the drivers and a cargo profile. Returns the executable.
fn build(variant: Variant, profile: &str) -> Result<PathBuf> {
    let folder = variant.folder().join("checks");
    let mut sources = Tree::read(&own_folder().join("checks"))?;
    keep_lock(&folder, &mut sources);
    sources.write(&folder)?;
    let mut build = cargo();
    build.args(["build", "--profile", profile, "--manifest-path"]).arg(folder.join("Cargo.toml"));
    run_command(small(&mut build))?;
    // The program is copied, because the build with the other driver would replace it in the shared
    // directory.
    let name = if profile == "dev" { "debug" } else { profile };
    let file = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let kept = variant.folder().join(format!("{name}-{file}"));
    fs::copy(target_folder().join(name).join(file), &kept)?;
    Ok(kept)
}

/// Makes cargo build in the shared directory, and disables outputs that are not used.
pub(super) fn small(command: &mut Command) -> &mut Command {
    command
        .env("CARGO_TARGET_DIR", target_folder())
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
}

/// Runs the short checks on a replica set that the program starts.
pub(super) fn check(variant: Variant) -> Result<()> {
    let program = build(variant, "dev")?;
    println!("checks of the {} driver", variant.as_str());
    run_command(Command::new(program).arg("check"))
}

/// Runs the checks of the published driver with the overlaid driver. These checks use simulated
/// deployments.
pub(super) fn simulate(sdam: &Path) -> Result<()> {
    let folder = Variant::Overlaid.folder();
    let mut project = Tree::read(&root().join("proof/foreign/rust-driver"))?;
    keep_lock(&folder.join("simulated"), &mut project);
    project.write(&folder.join("simulated"))?;
    let patch = format!("patch.crates-io.mongodb.path='{}'", folder.join("driver").display());
    let mut check = cargo();
    check.args(["run", "--quiet", "--config", &patch, "--manifest-path"]);
    check.arg(folder.join("simulated/Cargo.toml"));
    run_command(small(&mut check).arg("--").arg(sdam))
}

/// Adds the project's existing `Cargo.lock`, so that cargo does not resolve versions again.
pub(super) fn keep_lock(folder: &Path, project: &mut Tree) {
    if let Ok(lock) = fs::read(folder.join("Cargo.lock")) {
        project.insert("Cargo.lock", lock);
    }
}

/// Measures the two drivers alternately, and prints a table.
pub(super) fn measure(quick: bool) -> Result<()> {
    let published = build(Variant::Published, "release")?;
    let overlaid = build(Variant::Overlaid, "release")?;
    let mut compare = Command::new(&overlaid);
    compare.arg("compare").arg(published).arg(&overlaid);
    if quick {
        compare.arg("--quick");
    }
    run_command(&mut compare)
}
