//! The driver's source, as published and overlaid with our files.

use std::fs;
use std::path::{Path, PathBuf};

use sdam_core::names;
use serde_json::Value;

use super::edits::{Edited, Edits};
use super::lines::{Lines, is_source, is_test};
use super::tree::Tree;
use crate::Result;
use crate::cargo::{cargo, output, root, run as run_command};

/// The published version for which the overlay and the edits are made.
pub(super) const VERSION: &str = "3.9.1";

names! {
    /// One of the two drivers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
    pub(super) enum Variant {
        /// The driver as published.
        Published = "published",
        /// The driver whose `sdam` module is replaced by ours.
        Overlaid = "overlaid",
    }
}

impl Variant {
    /// Returns the folder for building the driver and the programs that use it.
    pub(super) fn folder(self) -> PathBuf {
        build_folder().join(self.as_str())
    }
}

/// Returns the folder for everything that this command fetches and builds.
pub(super) fn build_folder() -> PathBuf {
    root().join("target/foreign/rust-driver-on-sdam")
}

/// Returns the folder with our files.
pub(super) fn own_folder() -> PathBuf {
    root().join("proof/foreign/rust-driver-on-sdam")
}

/// Returns the build directory. Both drivers use the same one, because they have the same
/// dependencies.
pub(super) fn target_folder() -> PathBuf {
    build_folder().join("target")
}

/// Fetches the published crate with cargo, and returns its files.
pub(super) fn fetch() -> Result<Tree> {
    let folder = build_folder().join("fetch");
    let mut project = Tree::default();
    project.insert(
        "Cargo.toml",
        format!(
            "[package]\nname = \"fetch\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies]\nmongodb = \"={VERSION}\"\n"
        ),
    );
    project.insert("src/lib.rs", "");
    if let Ok(lock) = fs::read(folder.join("Cargo.lock")) {
        project.insert("Cargo.lock", lock);
    }
    project.write(&folder)?;
    let manifest = folder.join("Cargo.toml");
    run_command(cargo().arg("fetch").arg("--manifest-path").arg(&manifest))?;
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--manifest-path"]);
    let metadata: Value = serde_json::from_str(&output(metadata.arg(&manifest))?)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let source = packages
        .filter(|package| package["name"] == "mongodb")
        .find_map(|package| package["manifest_path"].as_str())
        .ok_or("cargo names no folder of the crate mongodb")?;
    Tree::read(Path::new(source).parent().unwrap_or(Path::new(source)))
}

/// Makes the driver a separate workspace, because its folder is inside our workspace.
pub(super) fn detached(mut driver: Tree) -> Result<Tree> {
    let manifest = driver.text("Cargo.toml")?.unwrap_or_default();
    let manifest = format!("{manifest}\n[workspace]\n");
    driver.insert("Cargo.toml", manifest);
    Ok(driver)
}

/// The driver with our files, and the size of its difference from the published driver.
#[derive(Debug)]
pub(super) struct Overlaid {
    pub(super) driver: Tree,
    /// The lines of the published `sdam` module that were replaced or removed, without tests.
    pub(super) removed: Lines,
    /// The lines of the overlay, without tests.
    pub(super) added: Lines,
    /// The edited lines of other files.
    pub(super) edited: Edited,
}

/// Overlays our files on the published driver, applies the edits and adds the dependency on `sdam`.
///
/// # Errors
/// If an edit cannot be applied, or a file is missing.
pub(super) fn overlaid(published: &Tree) -> Result<Overlaid> {
    let overlay = Tree::read(&own_folder().join("overlay"))?;
    let mut driver = published.clone();
    driver.lay_over(&overlay);
    let edited = edits("edits.txt")?.apply(&mut driver)?;
    let dependency = format!(
        "\n[dependencies.sdam]\npath = '{}'\nfeatures = [\"runtime-tokio\"]\n",
        root().join("sdam").display()
    );
    let manifest = driver.text("Cargo.toml")?.unwrap_or_default();
    let manifest = format!("{manifest}{dependency}");
    driver.insert("Cargo.toml", manifest);
    let is_gone = |path: &str| {
        overlay.paths().any(|own| own == path) || driver.paths().all(|left| left != path)
    };
    Ok(Overlaid {
        removed: count(published, |path| path.starts_with("src/sdam") && is_gone(path))?,
        added: count(&overlay, |_| true)?,
        edited,
        driver,
    })
}

/// Reads our edits file `name`.
pub(super) fn edits(name: &str) -> Result<Edits> {
    let path = own_folder().join(name);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Edits::parse(name, &text)
}

/// Counts the lines of the selected Rust files, excluding tests.
fn count(tree: &Tree, counts: impl Fn(&str) -> bool) -> Result<Lines> {
    let is_counted = |path: &&str| is_source(path) && !is_test(path) && counts(path);
    tree.paths()
        .filter(is_counted)
        .map(|path| Ok(Lines::of(tree.text(path)?.unwrap_or_default())))
        .sum()
}
