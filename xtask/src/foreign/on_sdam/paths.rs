//! The program that replays tests of the topology machine on the published driver.

use std::path::PathBuf;

use super::checks::{keep_lock, small};
use super::driver::{build_folder, detached, target_folder};
use super::edits::Edits;
use super::tree::Tree;
use crate::Result;
use crate::cargo::{cargo, root, run as run_command};

/// The program's name.
const PROGRAM: &str = "replay";

/// The features with which the driver is built.
const FEATURES: &str = "bson-3,compat-3-3-0,rustls-tls";

/// Builds the published driver with the program, and returns the executable.
pub(super) fn build(published: Tree) -> Result<PathBuf> {
    let own = root().join("proof/foreign/rust-driver-paths");
    let mut driver = detached(published)?;
    driver.lay_over(&Tree::read(&own.join("overlay"))?);
    let edits = std::fs::read_to_string(own.join("edits.txt"))?;
    Edits::parse("edits.txt", &edits)?.apply(&mut driver)?;
    let folder = build_folder().join("paths");
    keep_lock(&folder, &mut driver);
    driver.write(&folder)?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--bin", PROGRAM, "--no-default-features"]);
    build.args(["--features", FEATURES, "--manifest-path"]).arg(folder.join("Cargo.toml"));
    run_command(small(&mut build))?;
    Ok(target_folder().join("release").join(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX)))
}
