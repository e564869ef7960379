//! Faults of the network between the program and the deployment.

mod parse;

use std::{fmt, time::Duration};

use sdam_core::address::ServerAddress;

use crate::{
    MemberId,
    action::{ActionError, Target, Word, seconds},
    deployment::Role,
    runtime::{DnsFault, Latency, Sim},
};

/// A fault of the network between the program and the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetFault {
    /// Whether new connections to the member are refused.
    Refuse(Target, bool),
    /// Whether all bytes between the program and the member are dropped silently.
    Blackhole(Target, bool),
    /// Every connection to the member is reset now.
    Reset(Target),
    /// Every new connection to the member is reset after this many bytes from it; `None` turns
    /// this off.
    ResetAfter(Target, Option<usize>),
    /// Look-ups of a name, or with `None` of all names, have this fault; `None` ends it.
    Dns(Option<Box<str>>, Option<DnsFault>),
    /// The SRV records of a name change.
    Srv {
        /// The name, such as `_mongodb._tcp.cluster.sim.test`.
        name: Box<str>,
        /// The TTL of the new records.
        ttl: Duration,
        /// The host of each new record.
        hosts: Vec<ServerAddress>,
    },
    /// The latency of bytes changes.
    Latency(Latency),
    /// All faults of the network and of look-ups end; records stay as they are.
    Heal,
}

impl NetFault {
    pub(super) fn apply(&self, sim: &Sim) -> Result<(), ActionError> {
        let network = sim.network();
        match self {
            Self::Refuse(target, on) => network.refuse(resolve(sim, *target)?, *on),
            Self::Blackhole(target, on) => network.blackhole(resolve(sim, *target)?, *on),
            Self::Reset(target) => network.reset(resolve(sim, *target)?),
            Self::ResetAfter(target, bytes) => network.reset_after(resolve(sim, *target)?, *bytes),
            Self::Dns(Some(name), fault) => sim.dns().set_fault(name, *fault),
            Self::Dns(None, fault) => sim.dns().set_fault_of_all(*fault),
            Self::Srv { name, ttl, hosts } => sim.dns().set_srv(name, *ttl, hosts.clone()),
            Self::Latency(latency) => network.set_latency(*latency),
            Self::Heal => network.heal(),
        }
        Ok(())
    }
}

impl fmt::Display for NetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: &bool| if *on { "" } else { " off" };
        match self {
            Self::Refuse(target, on) => write!(f, "refuse {}{}", Word(*target), switch(on)),
            Self::Blackhole(target, on) => write!(f, "blackhole {}{}", Word(*target), switch(on)),
            Self::Reset(target) => write!(f, "reset {}", Word(*target)),
            Self::ResetAfter(target, Some(bytes)) => {
                write!(f, "reset_after {} {bytes}", Word(*target))
            }
            Self::ResetAfter(target, None) => write!(f, "reset_after {} off", Word(*target)),
            Self::Dns(name, fault) => {
                f.write_str("dns ")?;
                name.iter().try_for_each(|name| write!(f, "{name} "))?;
                match fault {
                    None => f.write_str("off"),
                    Some(DnsFault::Slow(latency)) => f.write_str(&seconds(*latency)),
                    Some(DnsFault::NoSuchName) => f.write_str("nxdomain"),
                    Some(DnsFault::ServerFailure) => f.write_str("servfail"),
                    Some(DnsFault::Silence) => f.write_str("silent"),
                    Some(DnsFault::Flapping(period)) => write!(f, "flap={}", seconds(*period)),
                }
            }
            Self::Srv { name, ttl, hosts } => {
                write!(f, "srv {name} {}", seconds(*ttl))?;
                hosts.iter().try_for_each(|host| write!(f, " {host}"))
            }
            Self::Latency(latency) => {
                let (min, spread) = (seconds(latency.min), seconds(latency.spread));
                let chunked = if latency.chunked { " chunked" } else { "" };
                write!(f, "latency {min} {spread}{chunked}")
            }
            Self::Heal => f.write_str("heal"),
        }
    }
}

/// Returns the member that `target` names now.
fn resolve(sim: &Sim, target: Target) -> Result<MemberId, ActionError> {
    let status = sim.status();
    let found = match target {
        Target::Member(id) => status.members.iter().find(|member| member.id == id),
        Target::Primary => status.primary(),
        Target::Secondary => status.with_role(Role::Secondary).next(),
    };
    let found = found.ok_or(ActionError::NoTarget(target))?;
    Ok(found.id)
}
