//! Identifiers and their ordering.

use alloc::{borrow::ToOwned as _, string::ToString as _};
use core::{cmp::Ordering, fmt};

/// A BSON ObjectId: twelve opaque bytes, compared from the most significant byte.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 12]);

impl ObjectId {
    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; 12]) -> Self {
        Self(bytes)
    }

    /// Returns the id's bytes.
    pub const fn bytes(self) -> [u8; 12] {
        self.0
    }

    /// Parses 24 hexadecimal digits.
    #[cfg(any(test, feature = "serde"))]
    pub(crate) fn parse_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 24 {
            return None;
        }
        let mut bytes = [0; 12];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                *byte = *byte << 4 | char::from(*digit).to_digit(16)? as u8;
            }
        }
        Some(Self(bytes))
    }

    /// Creates an id entirely from random bytes of `rng`; unlike a real ObjectId, it contains no
    /// timestamp.
    pub fn random(rng: &mut crate::rng::Rng) -> Self {
        let mut bytes = [0; 12];
        let random = rng.next_u64().to_be_bytes().into_iter().chain(rng.next_u64().to_be_bytes());
        for (byte, random) in bytes.iter_mut().zip(random) {
            *byte = random;
        }
        Self(bytes)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

/// The id of a server in one topology.
///
/// A server that is removed and added again gets a new id, so that a late result from before the
/// removal is recognized without comparing addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServerId(u64);

impl ServerId {
    /// Returns the id with this number. Ids are numbered from 1 within a topology.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Returns the id's number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The generation of a pool: the number of times it has been cleared (CMAP: "generation").
///
/// The topology keeps the current generation; each connection stores the generation in which it was
/// opened.
#[doc(alias = "poolGeneration")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Generation(u64);

impl Generation {
    /// The generation of a pool that has never been cleared.
    pub const FIRST: Self = Self(0);

    /// Returns the generation after `number` clears.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of earlier clears.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the generation after one more clear.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The version of a server process's view of the topology (SDAM: "topologyVersion").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct TopologyVersion {
    /// The server process.
    pub process_id: ObjectId,
    /// The number of significant changes that the process has seen.
    pub counter: i64,
}

impl TopologyVersion {
    /// Compares two versions (SDAM: "compareTopologyVersion").
    ///
    /// `Less` means that `other` is newer. `Less` is also the result if a version is missing or the
    /// processes differ, because such versions cannot be compared, and `other` then counts as
    /// newer.
    pub fn compare(current: Option<Self>, other: Option<Self>) -> Ordering {
        match (current, other) {
            (Some(current), Some(other)) if current.process_id == other.process_id => {
                current.counter.cmp(&other.counter)
            }
            _ => Ordering::Less,
        }
    }
}

/// The election id and the set version, which distinguish an old primary from a new one (SDAM:
/// "updateRSFromPrimary").
#[doc(alias("electionId", "setVersion"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct ElectionTuple {
    /// The id of the election that made the server primary.
    pub election_id: Option<ObjectId>,
    /// The version of the replica set configuration.
    pub set_version: Option<i64>,
}

impl ElectionTuple {
    /// Orders by election id, then by set version; a missing value sorts below any other.
    ///
    /// This is the rule for servers since MongoDB 6.0 (wire version 17).
    pub(crate) fn compare(self, other: Self) -> Ordering {
        (self.election_id, self.set_version).cmp(&(other.election_id, other.set_version))
    }
}

impl fmt::Display for ElectionTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.election_id.map_or_else(|| "null".to_owned(), |id| id.to_string());
        let version = self.set_version.map_or_else(|| "null".to_owned(), |own| own.to_string());
        write!(f, "(electionId: {id}, setVersion: {version})")
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn version(process: u8, counter: i64) -> TopologyVersion {
        TopologyVersion { process_id: ObjectId::from_bytes([process; 12]), counter }
    }

    #[test]
    fn topology_versions_of_other_processes_are_newer() {
        // A missing version, or one from a different process, counts as newer.
        let check = |current, other, expected| {
            assert_eq!(TopologyVersion::compare(current, other), expected, "{current:?} {other:?}");
        };
        check(None, Some(version(1, 1)), Ordering::Less);
        check(Some(version(1, 1)), None, Ordering::Less);
        check(Some(version(1, 9)), Some(version(2, 1)), Ordering::Less);
        check(Some(version(1, 1)), Some(version(1, 2)), Ordering::Less);
        check(Some(version(1, 2)), Some(version(1, 2)), Ordering::Equal);
        check(Some(version(1, 3)), Some(version(1, 2)), Ordering::Greater);
    }

    #[test]
    fn hex_round_trips_and_rejects_other_lengths() {
        let text = "0123456789abcdef01234567";
        assert_eq!(ObjectId::parse_hex(text).unwrap().to_string(), text);
        assert_eq!(ObjectId::parse_hex("0123"), None);
        assert_eq!(ObjectId::parse_hex("0123456789abcdef0123456g"), None);
    }
}
