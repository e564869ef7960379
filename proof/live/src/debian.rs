//! Servers from Debian packages, unpacked below the build directory.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::error::Unavailable;
use crate::fetch::{cannot, publish, run, staging};
use crate::workdir::target_dir;

/// The arguments of `apt-get` that download a package and its dependencies. The packages are not
/// installed, so no privileges are needed.
const DOWNLOAD: &str = "install --yes --quiet --download-only --no-install-recommends \
    -o Debug::NoLocking=true -o Acquire::http::Timeout=20";

/// Folders with server programs that are not on every user's search path.
const SBIN: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The programs of a package, and the libraries that they need.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    directories: Vec<PathBuf>,
    libraries: Option<OsString>,
}

impl Package {
    /// Finds a package by one of its programs on the search path, or downloads it.
    ///
    /// # Errors
    /// Returns [`Unavailable`] if the package is not found. The reason names the remedy.
    pub(crate) fn find(name: &'static str, program: &str) -> Result<Self, Unavailable> {
        match installed(env::var_os("PATH").as_deref(), program) {
            Some(installed) => Ok(installed),
            None => Ok(Self::unpacked(&downloaded(name)?)),
        }
    }

    /// Creates a command that runs `program` from the package.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut paths = self.directories.iter().map(|dir| dir.join(program));
        let path = paths.find(|path| path.is_file());
        let mut command = Command::new(path.unwrap_or_else(|| PathBuf::from(program)));
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Returns the programs and libraries of an unpacked package.
    fn unpacked(root: &Path) -> Self {
        let directories = ["usr/sbin", "usr/bin", "sbin", "bin"];
        let libraries = library_directories(root);
        Self {
            directories: directories.map(|dir| root.join(dir)).to_vec(),
            libraries: env::join_paths(libraries).ok(),
        }
    }
}

fn installed(search: Option<&OsStr>, program: &str) -> Option<Package> {
    let on_path = env::split_paths(search?);
    let directories: Vec<_> = on_path.chain(SBIN.map(PathBuf::from)).collect();
    let found = directories.iter().any(|dir| dir.join(program).is_file());
    found.then_some(Package { directories, libraries: None })
}

/// Returns the path of a library from the system, or from a downloaded package.
///
/// # Errors
/// Returns [`Unavailable`] if the library is not found. The reason names the remedy.
pub(crate) fn library(name: &'static str, path: &str) -> Result<PathBuf, Unavailable> {
    let below = |root: &Path| {
        let mut paths = library_directories(root).map(|dir| dir.join(path));
        paths.find(|path| path.is_file())
    };
    if let Some(found) = below(Path::new("/")) {
        return Ok(found);
    }
    below(&downloaded(name)?)
        .ok_or_else(|| Unavailable::new(format!("the Debian package {name} has no {path}")))
}

fn library_directories(root: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let parents = ["usr/lib", "lib"].map(|dir| root.join(dir));
    parents.into_iter().flat_map(|parent| {
        let entries = fs::read_dir(parent).into_iter().flatten();
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        paths.filter(|path| path.is_dir())
    })
}

/// Returns a package that is unpacked in `target/debian`. If the package is missing there, it is
/// downloaded with `apt-get`, and the download is reported on standard error.
fn downloaded(name: &'static str) -> Result<PathBuf, Unavailable> {
    /// The outcomes of downloads. Tests in the same process wait for each other's downloads, and do
    /// not repeat a failed one.
    static OUTCOMES: Mutex<BTreeMap<&str, Result<PathBuf, Unavailable>>> =
        Mutex::new(BTreeMap::new());
    let mut outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
    outcomes
        .entry(name)
        .or_insert_with(|| cached_or_fetched(&target_dir().join("debian"), name))
        .clone()
}

fn cached_or_fetched(cache: &Path, name: &str) -> Result<PathBuf, Unavailable> {
    let home = cache.join(name);
    if !home.is_dir() {
        eprintln!("fetching {name} with apt-get");
        fetch(cache, &home, name)?;
    }
    Ok(home)
}

/// Unpacks everything in a private directory and then moves that directory to `home` in one step.
/// The cache is therefore always complete, even if two processes fetch the same package.
fn fetch(cache: &Path, home: &Path, name: &str) -> Result<(), Unavailable> {
    let remedy = format!("install the Debian package {name}");
    let staging = staging(cache)?;
    let archives = staging.path().join("archives");
    let create =
        |dir: &Path| fs::create_dir_all(dir).map_err(|error| cannot("create", dir, &error));
    create(&archives.join("partial"))?;
    let cached = option("Dir::Cache", staging.path());
    let apt = |arguments: &str| {
        let mut apt = Command::new("apt-get");
        apt.args(arguments.split_whitespace()).args(["-o", &cached]);
        apt
    };
    if run(apt(DOWNLOAD).arg(name), &remedy).is_err() {
        // The system's package lists may be missing or outdated, and only root may update them, so
        // private lists are downloaded.
        let lists = staging.path().join("lists");
        create(&lists.join("partial"))?;
        let lists = option("Dir::State::Lists", &lists);
        let mut update =
            apt("update --quiet -o Debug::NoLocking=true -o Acquire::http::Timeout=20");
        run(update.args(["-o", &lists]), &remedy)?;
        run(apt(DOWNLOAD).args(["-o", &lists]).arg(name), &remedy)?;
    }
    let unpacked = staging.path().join("unpacked");
    let found = fs::read_dir(&archives).map_err(|error| cannot("read", &archives, &error))?;
    for archive in found.filter_map(Result::ok).map(|entry| entry.path()) {
        if archive.extension() == Some(OsStr::new("deb")) {
            let mut unpack = Command::new("dpkg-deb");
            run(unpack.arg("--extract").arg(archive).arg(&unpacked), &remedy)?;
        }
    }
    // The documentation is removed, because it would take up most of the cache.
    let _ = fs::remove_dir_all(unpacked.join("usr/share"));
    publish(&unpacked, home)
}

/// Returns an argument for `apt-get` that sets its directory option `name` to `dir`.
fn option(name: &str, dir: &Path) -> String {
    format!("{name}={}", dir.display())
}
