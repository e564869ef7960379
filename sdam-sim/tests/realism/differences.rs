//! Deliberate differences between simulated and real servers, with their reasons.

use sdam_live::Version;

use crate::{cases::Whom, compare::Aspect};

/// A deliberate difference.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The first and last release series with this difference.
    versions: (Version, Version),
    whom: &'static [Whom],
    /// The name of the case, or its prefix if it ends with `*`.
    case: &'static str,
    path: &'static str,
    #[expect(
        dead_code,
        reason = "it is shown with a stale entry, and to whoever reads the table"
    )]
    reason: &'static str,
}

const SET: &[Whom] = &[Whom::Primary, Whom::Secondary];
const EVERYBODY: &[Whom] = &[Whom::Standalone, Whom::Primary, Whom::Secondary];
const ALL: (Version, Version) = (Version::V4_2, Version::V6_0);

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        versions: ALL,
        whom: SET,
        case: "*",
        path: "lastWrite.majorityOpTime.ts",
        reason: "no commit point is simulated; discovery and selection read opTime and lastWriteDate",
    },
    Difference {
        versions: ALL,
        whom: SET,
        case: "*",
        path: "lastWrite.majorityOpTime.t",
        reason: "as above",
    },
    Difference {
        versions: ALL,
        whom: SET,
        case: "*",
        path: "lastWrite.majorityWriteDate",
        reason: "as above",
    },
    Difference {
        versions: ALL,
        whom: &[Whom::Primary],
        case: "insert*",
        path: "electionId",
        reason: "no client reads it out of the reply to a write",
    },
    Difference {
        versions: ALL,
        whom: &[Whom::Primary],
        case: "insert*",
        path: "opTime.ts",
        reason: "no client reads it out of the reply to a write; operationTime is there",
    },
    Difference {
        versions: ALL,
        whom: &[Whom::Primary],
        case: "insert*",
        path: "opTime.t",
        reason: "as above",
    },
    Difference {
        versions: ALL,
        whom: &[Whom::Primary],
        case: "insert without its concern",
        path: "writeConcernError.errmsg",
        reason: "a simulated fail point keeps the code of the error, which is what clients act upon",
    },
    Difference {
        versions: (Version::V4_4, Version::V6_0),
        whom: EVERYBODY,
        case: "hello compression",
        path: "compression",
        reason: "no compressor is simulated, so that none is agreed upon",
    },
    Difference {
        versions: (Version::V4_2, Version::V4_2),
        whom: EVERYBODY,
        case: "fail slowly",
        path: "(timing)",
        reason: "only late releases of the series know blockConnection, the simulated one always does",
    },
    Difference {
        versions: (Version::V4_2, Version::V4_2),
        whom: EVERYBODY,
        case: "fail slowly",
        path: "count",
        reason: "as above",
    },
    Difference {
        versions: (Version::V4_2, Version::V4_2),
        whom: EVERYBODY,
        case: "fail by closing",
        path: "count",
        reason: "as above",
    },
];

impl Difference {
    pub(crate) fn applies_to(&self, version: Version) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }

    pub(crate) fn explains(&self, whom: Whom, case: &str, aspect: &Aspect) -> bool {
        let named = match self.case.strip_suffix('*') {
            Some(prefix) => case.starts_with(prefix),
            None => self.case == case,
        };
        named && self.whom.contains(&whom) && self.path == aspect.path
    }
}
