use std::{fmt, time::Duration};

use sdam_core::{address::ServerAddress, ids::ObjectId, server::ServerType, time::Instant};

use super::Fact;

/// A time in which nothing can be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outage {
    /// The primary that was lost; `None` if the topology has no primaries.
    pub lost: Option<ServerAddress>,
    /// When a check of the lost server succeeded for the last time.
    pub last_writable: Instant,
    /// When the loss was noticed.
    pub noticed: Instant,
    /// When another member first named another primary.
    pub successor_named: Option<Instant>,
}

/// An outage that is over, or a change of primary without one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failover {
    /// What came before. If the new primary was found before the old one was missed, the outage
    /// began and ended at the same instant.
    pub outage: Outage,
    /// The primary that was found; `None` if the topology has no primaries.
    pub new: Option<ServerAddress>,
    /// The election that made it primary.
    pub election_id: Option<ObjectId>,
    /// When it was found, which is when writes could go on.
    pub writable_again: Instant,
}

impl Failover {
    /// From noticing the loss to the new primary: how long writes had to wait.
    pub fn without_primary(&self) -> Duration {
        self.writable_again.since(self.outage.noticed)
    }

    /// From the lost server's last sign of life to the new primary: how long writes may have failed.
    pub fn total(&self) -> Duration {
        self.writable_again.since(self.outage.last_writable)
    }

    /// From the lost server's last sign of life to noticing the loss.
    pub fn detection(&self) -> Duration {
        self.outage.noticed.since(self.outage.last_writable)
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lost {
            Some(address) => write!(f, "primary {address} lost")?,
            None => f.write_str("no server to write to")?,
        }
        write!(
            f,
            ", last seen {:.3?} before",
            self.noticed.since(self.last_writable)
        )
    }
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failover")?;
        if let Some(old) = &self.outage.lost {
            write!(f, " from {old}")?;
        }
        if let Some(new) = &self.new {
            write!(f, " to {new}")?;
        }
        write!(
            f,
            " in {:.3?} ({:.3?} to notice, {:.3?} without primary)",
            self.total(),
            self.detection(),
            self.without_primary()
        )
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrimaryChanged {
                old,
                new,
                election_id,
                ..
            } => {
                match (old, new) {
                    (Some(old), Some(new)) => write!(f, "primary {old} -> {new}")?,
                    (None, Some(new)) => write!(f, "primary {new} found")?,
                    (Some(old), None) => write!(f, "primary {old} gone")?,
                    (None, None) => f.write_str("no primary")?,
                }
                match election_id {
                    Some(id) => write!(f, " (election {id})"),
                    None => Ok(()),
                }
            }
            Self::OutageStarted(outage) => outage.fmt(f),
            Self::FailoverEnded(failover) => failover.fmt(f),
            Self::ServerLost {
                address,
                losses,
                reason,
                ..
            } => {
                write!(f, "{address} -> {}, loss {losses}", ServerType::Unknown)?;
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            Self::TopologyTypeChanged {
                old, new, lasted, ..
            } => write!(f, "{old} -> {new} after {lasted:.3?}"),
        }
    }
}
