//! The repository of the driver. It contains the driver's tests, which are missing in the published
//! crate.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::TestProgram;
use crate::Result;
use crate::cargo::{cargo, output, program as built_program, run as run_command};
use crate::foreign::on_sdam::checks::small;
use crate::foreign::on_sdam::driver::{VERSION, Variant, build_folder, detached, edits};
use crate::foreign::on_sdam::tree::Tree;
use crate::foreign::unavailable;

/// The environment variable that names a checkout: a work tree or a git directory.
const CHECKOUT: &str = "SDAM_RUST_DRIVER";

const REPOSITORY: &str = "https://github.com/mongodb/mongo-rust-driver";

/// The features that the driver's own CI tests, and the feature for the blocking API.
const FEATURES: &str = "tracing-unstable,cert-key-password,opentelemetry,error-backtrace,sync";

/// The tests and the official files that the repository contains.
#[derive(Debug)]
pub(super) struct Source {
    /// The folder in which the tests run, instead of the folder of the driver under test, because
    /// they read files from it.
    folder: PathBuf,
    /// The files below `src/test`.
    tests: Tree,
    /// True if the tests belong to the published version.
    is_exact: bool,
}

/// Returns the source of the tests. If the repository is not available, prints a warning and
/// returns `None`.
pub(super) fn find() -> Result<Option<Source>> {
    let checkout = match env::var_os(CHECKOUT) {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => match clone() {
            Ok(folder) => folder,
            Err(error) => {
                unavailable("the repository of the Rust driver", &*error)?;
                eprintln!("its own tests are left out; name a checkout in {CHECKOUT}");
                return Ok(None);
            }
        },
    };
    Source::extract(&checkout).map(Some)
}

fn git(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    // If the repository requires a password, it counts as missing.
    command.envs([("GIT_TERMINAL_PROMPT", "0"), ("GIT_ASKPASS", "true")]);
    command.arg("-C").arg(folder).args(arguments);
    command
}

/// Fetches the tag of the published version. If there is none, fetches the main branch.
fn clone() -> Result<PathBuf> {
    let folder = build_folder().join("repository.git");
    fs::create_dir_all(&folder)?;
    run_command(&mut git(&folder, &["init", "--quiet", "--bare"]))?;
    let fetch = |what: &str| {
        let fetch = ["fetch", "--quiet", "--depth", "1", REPOSITORY, what];
        run_command(&mut git(&folder, &fetch))
    };
    let tag = format!("refs/tags/v{VERSION}:refs/tags/v{VERSION}");
    fetch(&tag).or_else(|_| {
        fetch("+main:main")?;
        run_command(&mut git(&folder, &["symbolic-ref", "HEAD", "refs/heads/main"]))
    })?;
    Ok(folder)
}

impl Source {
    /// Extracts the files of a checkout. This is done only once for each commit.
    fn extract(checkout: &Path) -> Result<Self> {
        let commit = |name: &str| {
            let name = format!("{name}^{{commit}}");
            output(&mut git(checkout, &["rev-parse", "--quiet", "--verify", &name]))
        };
        let tag = commit(&format!("v{VERSION}"));
        let is_exact = tag.is_ok();
        let commit = tag
            .or_else(|_| commit("HEAD"))
            .map_err(|_| format!("{} has no commit of the driver", checkout.display()))?;
        let commit = commit.trim();
        let root = build_folder().join(format!("repository-{commit}"));
        if !root.is_dir() {
            export(checkout, commit, &root)?;
        }
        let folder = root.join("driver");
        Ok(Self { tests: Tree::read(&folder)?, folder, is_exact })
    }

    /// Adds the tests to a driver and builds them. The test program is stored beside the driver.
    pub(super) fn build(&self, variant: Variant, mut driver: Tree) -> Result<TestProgram> {
        driver.lay_over(&self.tests);
        if !self.is_exact {
            edits("edits-main.txt")?.apply(&mut driver)?;
        }
        if variant == Variant::Overlaid {
            edits("edits-tests.txt")?.apply(&mut driver)?;
        }
        let folder = variant.folder().join("tested");
        detached(driver)?.write(&folder)?;
        let mut build = cargo();
        build.args(["test", "--lib", "--no-run", "--features", FEATURES]);
        build.arg("--manifest-path").arg(folder.join("Cargo.toml"));
        let tests = built_program(small(&mut build), &folder, "mongodb")?;
        let program = variant.folder().join("tests");
        // The old program may be in use by another run, which a rename does not affect.
        let staging = program.with_extension(std::process::id().to_string());
        fs::copy(tests, &staging)?;
        fs::rename(staging, &program)?;
        Ok(TestProgram::new(program, self.folder.clone()))
    }
}

/// Writes the files of a commit to a folder. The folder appears only when it is complete.
fn export(checkout: &Path, commit: &str, to: &Path) -> Result<()> {
    let staging = to.with_extension(std::process::id().to_string());
    fs::create_dir_all(&staging)?;
    let archive = staging.join("archive.tar");
    let mut export = git(checkout, &["archive", "--output"]);
    export.arg(&archive).args([commit, "driver/src/test", "spec"]);
    run_command(&mut export)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(&archive).arg("-C").arg(&staging);
    run_command(&mut unpack)?;
    fs::remove_file(archive)?;
    Ok(fs::rename(staging, to)?)
}
