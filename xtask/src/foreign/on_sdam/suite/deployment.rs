//! The servers on which the driver's tests run.

use std::fmt;

use bson::doc;
use sdam_live::{MemberSpec, Mongod, ReplicaSet, ReplicaSetBuilder, Version, or_skip};

use crate::Result;

/// A deployment: the kind of the servers and their version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deployment {
    is_set: bool,
    version: Version,
}

/// The arguments that limit the lifetime of transactions to three seconds. Without this limit, a
/// transaction that a test leaves open would block the next test for longer.
const PARAMETERS: [&str; 2] = ["--setParameter", "transactionLifetimeLimitSeconds=3"];

impl Deployment {
    /// The deployments that the driver supports and for which servers can be fetched.
    pub(super) const ALL: [Self; 4] = [
        Self::set(Version::V6_0),
        Self::set(Version::V5_0),
        Self::set(Version::V4_4),
        Self { is_set: false, version: Version::V6_0 },
    ];

    const fn set(version: Version) -> Self {
        Self { is_set: true, version }
    }

    pub(super) fn named(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(|deployment| deployment.to_string());
        Self::ALL
            .into_iter()
            .find(|deployment| deployment.to_string() == name)
            .ok_or_else(|| format!("{name} is none of {}", known.join(", ")))
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_set { "replica-set" } else { "standalone" };
        write!(f, "{kind}-{}", self.version)
    }
}

/// The running servers of a deployment.
pub(super) enum Servers {
    Standalone(Box<Mongod>),
    Set(ReplicaSet),
}

impl Servers {
    /// Starts the servers. If `mongod` is not available in this version, prints the reason and
    /// returns `None`.
    pub(super) fn start(deployment: Deployment) -> Result<Option<Self>> {
        let Deployment { is_set, version } = deployment;
        if !is_set {
            let started = or_skip(Mongod::start_with(version, &PARAMETERS))?;
            return Ok(started.map(|server| Self::Standalone(Box::new(server))));
        }
        let members = [("one", "ny"), ("two", "pa"), ("three", "nyc")];
        let members =
            members.map(|(ordinal, dc)| MemberSpec::new().tag("ordinal", ordinal).tag("dc", dc));
        let builder = ReplicaSet::builder(version);
        let builder = PARAMETERS.into_iter().fold(builder, ReplicaSetBuilder::argument);
        Ok(or_skip(builder.start(&members))?.map(Self::Set))
    }

    /// Returns the connection string.
    pub(super) fn uri(&self) -> String {
        match self {
            // The connection string does not contain `directConnection`, because each test chooses
            // this option itself.
            Self::Standalone(server) => format!("mongodb://{}/", server.host()),
            Self::Set(set) => set.uri(),
        }
    }

    /// Removes what a test left on the servers, and waits until they are usable.
    pub(super) fn tidy(&self) -> Result<()> {
        let members: Vec<&Mongod> = match self {
            Self::Standalone(server) => vec![server],
            Self::Set(set) => {
                set.wait_until_settled()?;
                set.members().collect()
            }
        };
        for member in members {
            member.run_command(
                "admin",
                doc! { "configureFailPoint": "failCommand", "mode": "off" },
            )?;
        }
        Ok(())
    }
}
