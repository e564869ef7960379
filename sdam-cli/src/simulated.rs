//! The simulated deployment described by a command line, for `sdam sim` and `sdam serve`.

mod script;

use std::path::PathBuf;

use clap::Args;
use sdam_core::address::ServerAddress;
use sdam_sim::{Blueprint, ServerVersion, SetConfig, deployment::Status, serve::Builder};

pub(crate) use self::script::{Command, Script};
use crate::{failure::Failure, values::whole};

/// The simulated deployment, and the steps that change it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Simulated {
    #[command(flatten)]
    kind: Kind,
    /// The release to simulate, 3.6 to 8.0 [default: 8.0].
    #[arg(long, value_name = "X.Y")]
    version: Option<ServerVersion>,
    /// Number of processes that wait to be added to the replica set.
    #[arg(
        long, value_name = "N", value_parser = whole::<u16>(0..=1000),
        conflicts_with_all = ["sharded", "load_balanced", "standalone"]
    )]
    spares: Option<u16>,
    /// The seed of every random choice.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Steps that change the deployment, one per line, such as `kill primary`; `sleep SECONDS`
    /// waits, and a line may begin with its time: `1.5s kill primary`. `-` is standard input.
    #[arg(long, value_name = "FILE", visible_alias = "script")]
    scenario: Option<PathBuf>,
    /// Print the possible lines of a scenario, and exit.
    #[arg(long)]
    pub(crate) steps: bool,
}

/// The number of members if no kind of deployment is given.
const MEMBERS: u16 = 3;

/// The kind of deployment; a replica set of three members if none is given.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
struct Kind {
    /// A replica set of N members (the default, with 3).
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    replica_set: Option<u16>,
    /// N mongoses.
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    sharded: Option<u16>,
    /// N mongoses behind a load balancer.
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    load_balanced: Option<u16>,
    /// One mongod without a replica set.
    #[arg(long)]
    standalone: bool,
}

impl Simulated {
    /// Reads the scenario. Returns `None` if the command line does not name one.
    pub(crate) fn script(&self) -> Result<Option<Script>, Failure> {
        self.scenario.as_deref().map(Script::open).transpose()
    }

    /// Returns whether the deployment is a replica set.
    pub(crate) fn is_replica_set(&self) -> bool {
        let Kind { sharded, load_balanced, standalone, .. } = self.kind;
        sharded.or(load_balanced).is_none() && !standalone
    }

    /// Returns a builder for the deployment on loopback.
    pub(crate) fn builder(&self) -> Builder {
        let builder = match self.kind {
            Kind { sharded: Some(mongoses), .. } => Builder::sharded(mongoses),
            Kind { load_balanced: Some(mongoses), .. } => Builder::load_balanced(mongoses),
            Kind { standalone: true, .. } => Builder::standalone(),
            Kind { replica_set, .. } => Builder::replica_set(replica_set.unwrap_or(MEMBERS)),
        };
        let builder = builder.version(self.version.unwrap_or_default());
        let builder = builder.spares(self.spares.unwrap_or_default());
        match self.seed {
            Some(seed) => builder.seed(seed),
            None => builder,
        }
    }

    /// Returns the blueprint of the simulated deployment, which runs in virtual time.
    pub(crate) fn blueprint(&self) -> Blueprint {
        let hosts = |name, count| {
            (0..count).map(move |number: u16| ServerAddress::new(&format!("{name}{number}"), 27017))
        };
        let blueprint = match self.kind {
            Kind { sharded: Some(mongoses), .. } => Blueprint::sharded(hosts("mongos", mongoses)),
            // Clients reach all mongoses at the address of the load balancer.
            Kind { load_balanced: Some(mongoses), .. } => {
                Blueprint::load_balanced(hosts("balancer", 1).cycle().take(usize::from(mongoses)))
            }
            Kind { standalone: true, .. } => {
                Blueprint::standalone(ServerAddress::new("db0", 27017))
            }
            Kind { replica_set, .. } => {
                let members = replica_set.unwrap_or(MEMBERS);
                let count = members.saturating_add(self.spares.unwrap_or_default());
                let mut hosts = hosts("db", count);
                let own = hosts.by_ref().take(usize::from(members));
                let set = Blueprint::replica_set(SetConfig::new("rs0", own));
                hosts.fold(set, Blueprint::spare)
            }
        };
        blueprint.version(self.version.unwrap_or_default())
    }
}

/// Describes each member on one line.
pub(crate) fn describe(status: &Status) -> impl Iterator<Item = String> {
    status.members.iter().map(|member| {
        let role = match (member.running, member.role) {
            (false, _) => "down".to_owned(),
            (true, None) => "up".to_owned(),
            (true, Some(role)) => format!("{role:?}").to_lowercase(),
        };
        let mute = if member.running && !member.answers { " (does not answer)" } else { "" };
        let version = member.topology_version;
        format!(
            "{} {} {role}{mute} term {} counter {}",
            member.id, member.address, member.term, version.counter
        )
    })
}
