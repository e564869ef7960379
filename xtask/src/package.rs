//! `cargo xtask package`: rehearses a release.

use std::process::Command;

use crate::Result;
use crate::cargo::{cargo, output, root, run as run_command};

pub(crate) fn run(verify: bool, semver: bool) -> Result<()> {
    if semver {
        check_versions()?;
    }
    let mut command = cargo();
    command.args(["publish", "--workspace", "--dry-run", "--quiet"]);
    command.args(["--allow-dirty", "--locked"]);
    if !verify {
        command.arg("--no-verify");
    }
    run_command(&mut command)
}

/// Compares the public items of every published crate with those of the last release.
fn check_versions() -> Result<()> {
    let arguments = ["tag", "--list", "v*", "--sort=-version:refname"];
    let tags = output(Command::new("git").args(arguments).current_dir(root()))?;
    let Some(last) = tags.lines().next() else {
        println!("there is no tag of a release yet, so there is nothing to compare with");
        return Ok(());
    };
    let arguments = ["semver-checks", "--workspace", "--baseline-rev", last];
    run_command(cargo().args(arguments))
}
