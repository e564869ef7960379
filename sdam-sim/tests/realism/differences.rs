//! Deliberate differences between simulated and real servers, with their reasons.

use sdam_live::Version;

use crate::{cases::ServerKind, compare::Aspect};

/// A deliberate difference.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The first and last release series that have this difference.
    versions: (Version, Version),
    kinds: &'static [ServerKind],
    /// The name of the case, or its prefix if it ends with `*`.
    case: &'static str,
    path: &'static str,
    #[expect(dead_code, reason = "it documents the entry, and `Debug` prints it for a stale one")]
    reason: &'static str,
}

const MEMBERS: &[ServerKind] = &[ServerKind::Primary, ServerKind::Secondary];
const ALL_KINDS: &[ServerKind] =
    &[ServerKind::Standalone, ServerKind::Primary, ServerKind::Secondary];
const ALL: (Version, Version) = (Version::V4_2, Version::V6_0);

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        versions: ALL,
        kinds: MEMBERS,
        case: "*",
        path: "lastWrite.majorityOpTime.ts",
        reason: "no commit point is simulated; discovery and selection read opTime and lastWriteDate",
    },
    Difference {
        versions: ALL,
        kinds: MEMBERS,
        case: "*",
        path: "lastWrite.majorityOpTime.t",
        reason: "as above",
    },
    Difference {
        versions: ALL,
        kinds: MEMBERS,
        case: "*",
        path: "lastWrite.majorityWriteDate",
        reason: "as above",
    },
    Difference {
        versions: ALL,
        kinds: &[ServerKind::Primary],
        case: "insert*",
        path: "electionId",
        reason: "no client reads it from the reply to a write",
    },
    Difference {
        versions: ALL,
        kinds: &[ServerKind::Primary],
        case: "insert*",
        path: "opTime.ts",
        reason: "no client reads it from the reply to a write; operationTime is present",
    },
    Difference {
        versions: ALL,
        kinds: &[ServerKind::Primary],
        case: "insert*",
        path: "opTime.t",
        reason: "as above",
    },
    Difference {
        versions: (Version::V4_4, Version::V6_0),
        kinds: ALL_KINDS,
        case: "hello compression",
        path: "compression",
        reason: "no compressor is simulated, so none is negotiated",
    },
    Difference {
        versions: (Version::V4_2, Version::V4_2),
        kinds: ALL_KINDS,
        case: "fail slowly",
        path: "(timing)",
        reason: "only late releases of the series support blockConnection, the simulated one always does",
    },
    Difference {
        versions: (Version::V4_2, Version::V4_2),
        kinds: ALL_KINDS,
        case: "fail slowly",
        path: "count",
        reason: "as above",
    },
    Difference {
        versions: (Version::V4_2, Version::V4_2),
        kinds: ALL_KINDS,
        case: "fail by closing",
        path: "count",
        reason: "as above",
    },
];

impl Difference {
    pub(crate) fn applies_to(&self, version: Version) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }

    pub(crate) fn explains(&self, kinds: ServerKind, case: &str, aspect: &Aspect) -> bool {
        let named = match self.case.strip_suffix('*') {
            Some(prefix) => case.starts_with(prefix),
            None => self.case == case,
        };
        named && self.kinds.contains(&kinds) && self.path == aspect.path
    }
}
