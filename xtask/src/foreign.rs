//! `cargo xtask foreign`: tests third-party clients with the simulated deployment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::cargo::{built, cargo, root, run as run_command};

/// The versions of PyMongo that are tested. No single version supports all releases that are
/// simulated.
const PYMONGO: [&str; 2] = ["4.20.0", "4.10.1"];

/// The environment variable that turns a missing client into a failure.
const REQUIRED: &str = "SDAM_FOREIGN_REQUIRED";

/// A third-party client, and its tests.
///
/// A driver that cannot be fetched is skipped with a warning; `SDAM_FOREIGN_REQUIRED=1` makes that
/// a failure.
#[derive(clap::Subcommand)]
pub(crate) enum Client {
    /// `PyMongo`, fetched by pip: the newest version, and one that still supports 3.6.
    Pymongo,
    /// The Node.js driver, fetched by npm.
    Node,
    /// The official Rust driver, fetched and built by cargo.
    Rust,
    /// Measure our client and the official Rust driver side by side, in one program.
    RustFigures,
}

pub(crate) fn run(client: &Client) -> Result<()> {
    match client {
        Client::Pymongo => {
            let sdam = sdam()?;
            PYMONGO.iter().try_for_each(|version| pymongo(version, &sdam))
        }
        Client::Node => node(&sdam()?),
        Client::Rust => rust("rust-driver", &[], &sdam()?),
        Client::RustFigures => rust("rust-driver-figures", &["--release"], &sdam()?),
    }
}

/// Builds the program `sdam` and returns its path.
fn sdam() -> Result<PathBuf> {
    // When cargo builds an integration test, it also builds the programs of the package, with the
    // features that all tests need.
    built("sdam-cli", ["--test", "commands"], "sdam")
}

fn pymongo(version: &str, sdam: &Path) -> Result<()> {
    let folder = root().join(format!("target/foreign/pymongo-{version}"));
    if !folder.join("pymongo").is_dir() {
        let mut fetch = Command::new("python3");
        fetch.args(["-m", "pip", "install", "--quiet", "--target"]);
        fetch.arg(&folder).arg(format!("pymongo=={version}"));
        if let Err(error) = run_command(&mut fetch) {
            return unavailable("PyMongo", &*error);
        }
    }
    let mut check = Command::new("python3");
    check.arg(root().join("proof/foreign/pymongo/check.py"));
    run_command(check.arg(sdam).env("PYTHONPATH", folder))
}

fn node(sdam: &Path) -> Result<()> {
    let folder = copied("node", &["package.json", "check.mjs"])?;
    let mut fetch = Command::new("npm");
    fetch.args(["install", "--silent", "--no-audit", "--no-fund"]);
    if let Err(error) = run_command(fetch.current_dir(&folder)) {
        return unavailable("the Node.js driver", &*error);
    }
    run_command(Command::new("node").arg(folder.join("check.mjs")).arg(sdam))
}

fn rust(project: &str, profile: &[&str], sdam: &Path) -> Result<()> {
    let manifest = copied(project, &["Cargo.toml", "src/main.rs"])?.join("Cargo.toml");
    if let Err(error) = run_command(cargo().arg("fetch").arg("--manifest-path").arg(&manifest)) {
        return unavailable("the Rust driver", &*error);
    }
    let mut check = cargo();
    check.args(["run", "--quiet"]).args(profile).arg("--manifest-path").arg(manifest);
    run_command(check.arg("--").arg(sdam))
}

/// Copies a project to a folder below `target`. Downloads and build results are also written to
/// that folder.
fn copied(project: &str, files: &[&str]) -> Result<PathBuf> {
    let folder = root().join("target/foreign").join(project);
    for file in files {
        let to = folder.join(file);
        fs::create_dir_all(to.parent().unwrap_or(&folder))?;
        fs::copy(root().join("proof/foreign").join(project).join(file), to)?;
    }
    Ok(folder)
}

fn unavailable(client: &str, error: &dyn std::error::Error) -> Result<()> {
    let message = format!("{client} cannot be fetched: {error}");
    if std::env::var_os(REQUIRED).is_some_and(|value| !value.is_empty() && value != "0") {
        return Err(message.into());
    }
    eprintln!("warning: {message}; its checks are skipped");
    Ok(())
}
