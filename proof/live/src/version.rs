//! Release series of the server.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;

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
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
        };
        parse().ok_or_else(|| InvalidVersion { text: text.to_owned() })
    }
}

/// The error for an invalid release series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a release series such as 6.0")]
pub struct InvalidVersion {
    text: String,
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

#[cfg(test)]
mod tests {
    use super::Version;

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
