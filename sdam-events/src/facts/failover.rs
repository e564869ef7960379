use std::{fmt, time::Duration};

use sdam_core::{address::ServerAddress, ids::ObjectId, server::ServerType, time::Instant};

use super::Fact;

/// A period without a writable server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outage {
    /// The primary that was lost; `None` if the topology has no primaries.
    pub lost: Option<ServerAddress>,
    /// The time of the last check that showed the lost server as writable; equal to `noticed` if
    /// there was none.
    pub last_writable: Instant,
    /// The time when the loss was noticed.
    pub noticed: Instant,
    /// The time when another member first reported a different primary.
    pub successor_named: Option<Instant>,
}

/// An outage that has ended, or a change of primary without an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failover {
    /// The outage before the failover. If the new primary was found before the loss of the old one
    /// was noticed, the outage began and ended at the same instant.
    pub outage: Outage,
    /// The primary that was found; `None` if the topology has no primaries.
    pub new: Option<ServerAddress>,
    /// The election id of the new primary.
    pub election_id: Option<ObjectId>,
    /// The time when the new primary was found, so that writes became possible again.
    pub writable_again: Instant,
}

impl Failover {
    /// Returns the time from noticing the loss to finding the new primary, during which writes had
    /// to wait.
    pub fn without_primary(&self) -> Duration {
        self.writable_again.since(self.outage.noticed)
    }

    /// Returns the time from [`last_writable`](Outage::last_writable) to the new primary, during
    /// which writes may have failed.
    pub fn total(&self) -> Duration {
        self.writable_again.since(self.outage.last_writable)
    }

    /// Returns the time from [`last_writable`](Outage::last_writable) to noticing the loss.
    pub fn detection(&self) -> Duration {
        self.outage.noticed.since(self.outage.last_writable)
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lost {
            Some(address) => write!(f, "primary {address} lost")?,
            None => f.write_str("no writable server")?,
        }
        write!(f, ", last seen {:.3?} before", self.noticed.since(self.last_writable))
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
            " in {:.3?} (detected after {:.3?}, {:.3?} without primary)",
            self.total(),
            self.detection(),
            self.without_primary()
        )
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrimaryChanged { old, new, election_id, .. } => {
                match (old, new) {
                    (Some(old), Some(new)) => write!(f, "primary {old} -> {new}")?,
                    (None, Some(new)) => write!(f, "primary {new} found")?,
                    (Some(old), None) => write!(f, "primary {old} -> none")?,
                    (None, None) => f.write_str("no primary")?,
                }
                match election_id {
                    Some(id) => write!(f, " (election {id})"),
                    None => Ok(()),
                }
            }
            Self::OutageStarted(outage) => outage.fmt(f),
            Self::FailoverEnded(failover) => failover.fmt(f),
            Self::ServerLost { address, losses, reason, .. } => {
                write!(f, "{address} -> {}, loss {losses}", ServerType::Unknown)?;
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            Self::TopologyTypeChanged { old, new, lasted, .. } => {
                write!(f, "{old} -> {new} after {lasted:.3?}")
            }
        }
    }
}
