//! Servers that demand authentication.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::Error;

/// Name and password of the user that a secured server has from the start, in `admin`.
pub const ROOT: (&str, &str) = ("root", "root");

/// The error code of a command that needs authentication.
pub(crate) const UNAUTHORIZED: i32 = 13;

/// The secret that the members of a set share.
const KEY: &str = "c2RhbS1saXZl";

/// The smallest numbers of iterations that the server accepts for new passwords: clients in debug
/// builds need too long for the defaults.
pub(crate) const ITERATIONS: [&str; 4] = [
    "--setParameter",
    "scramIterationCount=5000",
    "--setParameter",
    "scramSHA256IterationCount=5000",
];

/// The connections that a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// All. Authentication is checked where a client asks for it.
    Open,
    /// Only connections of authenticated users.
    Users,
}

/// Writes the key file, with which a server demands authentication, and returns the arguments that
/// name it.
pub(crate) fn key_file(dir: &Path) -> Result<[String; 2], Error> {
    let path = dir.join("key");
    let failed = || Error::io("writing a key file");
    fs::write(&path, KEY).map_err(failed())?;
    make_private(&path).map_err(failed())?;
    Ok(["--keyFile".to_owned(), path.display().to_string()])
}

/// Lets only this user read the file: the server refuses a key that others may read.
#[cfg(unix)]
fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}
