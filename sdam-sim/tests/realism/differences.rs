//! Deliberate differences between simulated and real servers, and the reasons for them.

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
const PRIMARY: &[ServerKind] = &[ServerKind::Primary];
const ALL: (Version, Version) = (Version::V4_2, Version::V6_0);
const ONLY_4_2: (Version, Version) = (Version::V4_2, Version::V4_2);
const SINCE_4_4: (Version, Version) = (Version::V4_4, Version::V6_0);

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference::new(
        (ALL, MEMBERS),
        ("*", "lastWrite.majorityOpTime.ts"),
        "no commit point is simulated; discovery and selection read opTime and lastWriteDate",
    ),
    Difference::new((ALL, MEMBERS), ("*", "lastWrite.majorityOpTime.t"), "as above"),
    Difference::new((ALL, MEMBERS), ("*", "lastWrite.majorityWriteDate"), "as above"),
    Difference::new(
        (ALL, PRIMARY),
        ("insert*", "electionId"),
        "no client reads it from the reply to a write",
    ),
    Difference::new(
        (ALL, PRIMARY),
        ("insert*", "opTime.ts"),
        "no client reads it from the reply to a write; operationTime is present",
    ),
    Difference::new((ALL, PRIMARY), ("insert*", "opTime.t"), "as above"),
    Difference::new(
        (SINCE_4_4, ALL_KINDS),
        ("hello compression", "compression"),
        "no compressor is simulated, so none is negotiated",
    ),
    Difference::new(
        (ONLY_4_2, ALL_KINDS),
        ("fail slowly*", "(timing)"),
        "only late releases of the series support blockConnection, the simulated one always does",
    ),
    Difference::new((ONLY_4_2, ALL_KINDS), ("fail slowly*", "count"), "as above"),
    Difference::new((ONLY_4_2, ALL_KINDS), ("fail by closing", "count"), "as above"),
];

impl Difference {
    const fn new(
        (versions, kinds): ((Version, Version), &'static [ServerKind]),
        (case, path): (&'static str, &'static str),
        reason: &'static str,
    ) -> Self {
        Self { versions, kinds, case, path, reason }
    }

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
