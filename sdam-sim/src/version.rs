//! The releases that a simulated server can emulate.

use std::{fmt, str::FromStr};

/// The release of a simulated server. It decides which fields, rules and error messages the server
/// uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion {
    major: u8,
    minor: u8,
    patch: u8,
}

impl ServerVersion {
    /// MongoDB 3.6, the first series with OP_MSG.
    pub const V3_6: Self = Self::new(3, 6, 23);
    /// MongoDB 4.0, the last series that closes its connections on a step-down.
    pub const V4_0: Self = Self::new(4, 0, 28);
    /// MongoDB 4.2, the last series without streaming.
    pub const V4_2: Self = Self::new(4, 2, 25);
    /// MongoDB 4.4, the first series with streaming.
    pub const V4_4: Self = Self::new(4, 4, 29);
    /// MongoDB 5.0.
    pub const V5_0: Self = Self::new(5, 0, 31);
    /// MongoDB 6.0.
    pub const V6_0: Self = Self::new(6, 0, 20);
    /// MongoDB 7.0.
    pub const V7_0: Self = Self::new(7, 0, 17);
    /// MongoDB 8.0.
    pub const V8_0: Self = Self::new(8, 0, 5);

    /// The last known release of each series, oldest first.
    pub const SERIES: [Self; 8] = [
        Self::V3_6,
        Self::V4_0,
        Self::V4_2,
        Self::V4_4,
        Self::V5_0,
        Self::V6_0,
        Self::V7_0,
        Self::V8_0,
    ];

    const fn new(major: u8, minor: u8, patch: u8) -> Self {
        Self { major, minor, patch }
    }

    /// Returns another patch release in the same series, such as 4.2.9 for 4.2.
    #[must_use]
    pub const fn patch(self, patch: u8) -> Self {
        Self { patch, ..self }
    }

    /// Returns the release's `maxWireVersion`.
    pub const fn max_wire_version(self) -> i32 {
        match (self.major, self.minor) {
            (..=3, _) => 6,
            (4, 0) => 7,
            (4, 2) => 8,
            (4, _) => 9,
            (5, _) => 13,
            (6, _) => 17,
            (7, _) => 21,
            _ => 25,
        }
    }

    /// Returns the release's major, minor and patch numbers.
    pub const fn numbers(self) -> [i32; 3] {
        [self.major as i32, self.minor as i32, self.patch as i32]
    }

    /// Returns whether the release supports `hello` in addition to legacy hello.
    pub fn supports_hello(self) -> bool {
        self >= match (self.major, self.minor) {
            (..=3, _) => Self::new(3, 6, 21),
            (4, 0) => Self::new(4, 0, 21),
            (4, 2) => Self::new(4, 2, 10),
            _ => Self::new(4, 4, 2),
        }
    }

    /// Returns whether replies have a topology version, and hellos can be awaitable and streamed.
    pub fn supports_streaming(self) -> bool {
        self.max_wire_version() >= 9
    }

    /// Returns whether servers reply to `helloOk`. The first 4.4 release that supports hello does
    /// not reply to it.
    pub fn supports_hello_ok(self) -> bool {
        self.supports_hello() && self != Self::new(4, 4, 2)
    }

    /// Returns whether the release has the versioned API. Such releases also avoid words like
    /// "slave".
    pub fn has_versioned_api(self) -> bool {
        self.major >= 5
    }

    /// Returns whether a mongos of this release supports load balancers.
    pub fn supports_load_balancers(self) -> bool {
        self.major >= 5
    }

    /// Returns whether hello can include the first authentication command. Such releases also allow
    /// clients to omit the final empty exchange.
    #[cfg(feature = "auth")]
    pub(crate) fn authenticates_speculatively(self) -> bool {
        self.max_wire_version() >= 9
    }

    /// Returns whether the server adds labels to retryable errors.
    pub fn adds_error_labels(self) -> bool {
        self.max_wire_version() >= 9
    }
}

impl Default for ServerVersion {
    fn default() -> Self {
        Self::V8_0
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The error returned for an unknown release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version that can be simulated, which are {list}", list = series())]
pub struct UnknownVersion(Box<str>);

fn series() -> String {
    ServerVersion::SERIES.map(|own| format!("{}.{}", own.major, own.minor)).join(" ")
}

impl FromStr for ServerVersion {
    type Err = UnknownVersion;

    /// Parses a release such as `6.0.5`. A series such as `6.0` means the last release in the
    /// series.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let unknown = || UnknownVersion(text.into());
        let numbers: Vec<u8> =
            text.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| unknown())?;
        let (major, minor, patch) = match *numbers.as_slice() {
            [major, minor] => (major, minor, None),
            [major, minor, patch] => (major, minor, Some(patch)),
            _ => return Err(unknown()),
        };
        Self::SERIES
            .into_iter()
            .find(|series| (series.major, series.minor) == (major, minor))
            .map(|series| patch.map_or(series, |patch| series.patch(patch)))
            .ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_selects_its_last_release_and_unknown_series_are_errors() {
        assert_eq!("4.2".parse(), Ok(ServerVersion::V4_2));
        assert_eq!("4.2.9".parse(), Ok(ServerVersion::V4_2.patch(9)));
        for text in ["", "4", "4.3", "4.2.x", "4.2.1.1", "v6.0"] {
            assert!(text.parse::<ServerVersion>().is_err(), "{text}");
        }
    }
}
