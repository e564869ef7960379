//! Servers that require authentication.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::Error;

/// The name and the password of the user that a secured server initially has in `admin`.
pub const ROOT: (&str, &str) = ("root", "root");

/// The shared secret of a set's members.
const KEY: &str = "c2RhbS1saXZl";

/// The arguments that set the iteration counts of new passwords to the minimum that the server
/// accepts. With the default counts, authentication takes too long for clients in debug builds.
pub(crate) const ITERATIONS: [&str; 4] = [
    "--setParameter",
    "scramIterationCount=5000",
    "--setParameter",
    "scramSHA256IterationCount=5000",
];

/// Writes the key file, which makes a server require authentication. Returns the arguments that
/// tell the server the name of the file.
pub(crate) fn key_file(dir: &Path) -> Result<[String; 2], Error> {
    let path = dir.join("key");
    let failed = || Error::io("writing a key file");
    fs::write(&path, KEY).map_err(failed())?;
    make_private(&path).map_err(failed())?;
    Ok(["--keyFile".to_owned(), path.display().to_string()])
}

/// Makes the file readable only for the current user, because the server refuses a key file that
/// others can read.
#[cfg(unix)]
fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}
