//! Finds the official test files, or fetches them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sdam_spec::corpus::Corpus;

use crate::Result;
use crate::cargo::{output, relative};

const REPOSITORY: &str = "https://github.com/mongodb/specifications";
const COMMIT: &str = "92b3c0b9287bfba1b0ec4084300858d05c654f8c";

/// A distribution that contains the official files under different names. The hash pins the
/// reviewed version.
const REQUIREMENT: &str = "pymongo==4.20.0 \
    --hash=sha256:f773b0aec28687587cdeda490463a82debc4566a4a3620dcc8dada9d2c0a1acd\n";

/// Returns the corpus in the folder that `SDAM_SPEC_CORPUS` names. If the variable is not set, the
/// corpus is below the build directory, and it is fetched if it is missing. Prints where the files
/// come from.
pub(crate) fn corpus() -> Result<Corpus> {
    match env::var_os("SDAM_SPEC_CORPUS") {
        Some(folder) if !folder.is_empty() => {
            let folder = Path::new(&folder);
            println!("official files: {} (SDAM_SPEC_CORPUS)", folder.display());
            Ok(Corpus::open(folder)?)
        }
        _ => below(&sdam_live::target_dir()),
    }
}

/// Returns the corpus in the folder `spec-corpus` of `target`.
fn below(target: &Path) -> Result<Corpus> {
    let home = target.join("spec-corpus");
    let mut origin = "fetched earlier";
    if !home.is_dir() {
        let staging = sdam_live::work_dir_in(target, "spec-corpus")
            .map_err(|error| format!("cannot write to {}: {error}", target.display()))?;
        let fetched;
        (fetched, origin) = fetch(staging.path())?;
        // Renames the folder into place in one step, so that a folder called `home` is always
        // complete.
        fs::rename(&fetched, &home)
            .map_err(|error| format!("cannot create {}: {error}", home.display()))?;
    }
    println!("official files: {} ({origin})", relative(&home));
    let hint = |error| format!("{error}; remove {} to fetch it again", home.display());
    Ok(Corpus::open(&home).map_err(hint)?)
}

/// Fetches the files into a folder below `staging`. Returns the folder and where they come from.
fn fetch(staging: &Path) -> Result<(PathBuf, &'static str)> {
    let cloned = clone(staging).map(|folder| (folder, "from the specifications' repository"));
    cloned.or_else(|by_git| {
        let downloaded = download(staging).map_err(|by_pip| {
            format!(
                "the specification tests cannot be fetched:\n  {by_git}\n  {by_pip}\n\
                 name a folder that holds them with --corpus or SDAM_SPEC_CORPUS"
            )
        })?;
        Ok((downloaded, "from the source distribution of PyMongo"))
    })
}

/// Fetches a single commit of the specifications' repository, without the history.
fn clone(staging: &Path) -> Result<PathBuf> {
    let clone = staging.join("clone");
    fs::create_dir_all(&clone)?;
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        // A repository that requires a password counts as missing.
        let quiet = [("GIT_TERMINAL_PROMPT", "0"), ("GIT_ASKPASS", "true")];
        output(command.args(arguments).envs(quiet).current_dir(&clone)).map(drop)
    };
    git(&["init", "--quiet"])?;
    git(&["fetch", "--quiet", "--depth", "1", REPOSITORY, COMMIT])?;
    git(&["checkout", "--quiet", "FETCH_HEAD"])?;
    Ok(clone)
}

fn download(staging: &Path) -> Result<PathBuf> {
    let requirements = staging.join("requirements.txt");
    fs::write(&requirements, REQUIREMENT)?;
    let python = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        output(command.args(arguments).current_dir(staging)).map(drop)
    };
    let pip = ["-m", "pip", "--quiet", "--disable-pip-version-check", "download"];
    let what = ["--no-deps", "--no-binary", "pymongo", "--require-hashes"];
    let where_to = ["--dest", "sdist", "--requirement", "requirements.txt"];
    python(&[&pip[..], &what, &where_to].concat())?;
    python(&["-m", "tarfile", "--extract", "sdist/pymongo-4.20.0.tar.gz", "unpacked"])?;
    Ok(staging.join("unpacked/pymongo-4.20.0"))
}
