use std::{fmt, ops::Add, time::Duration};

use sdam_core::{
    address::ServerAddress, error::Error, ids::ObjectId, server::ServerType, time::Instant,
};

use super::{Fact, MOMENT};

/// The way in which a client learned that a server is no longer writable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The server itself answered that it now has this type.
    SteppedDown(ServerType),
    /// A check or an operation failed with this error.
    Failed(Error),
    /// This server answered as the new primary. The old primary had neither failed nor reported a
    /// change: it may have been silent for some time, or may still regard itself as primary.
    Replaced(ServerAddress),
    /// The server left the topology.
    Left,
}

/// The bounds of a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The lower bound.
    pub at_least: Duration,
    /// The upper bound; equal to the lower bound if the duration is known.
    pub at_most: Duration,
}

impl Add for Bounds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { at_least: self.at_least + other.at_least, at_most: self.at_most + other.at_most }
    }
}

/// A period without a writable server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outage {
    /// The primary that was lost; `None` if the topology has no primaries.
    pub lost: Option<ServerAddress>,
    /// The way in which the loss was noticed.
    pub loss: Loss,
    /// The time at which an answer, to a check or to a measurement of the round-trip time, last
    /// showed the lost server to be writable; equal to `noticed` if there was no such answer.
    pub last_writable: Instant,
    /// The time at which the lost server became suspect, if it was silent from then on.
    pub suspected: Option<Instant>,
    /// The time when the client stopped regarding the server as writable.
    pub noticed: Instant,
    /// True if the lost server was streaming, so that it reported changes at once, and no answer
    /// from it was overdue.
    pub streamed: bool,
    /// The time when another member first reported a different primary.
    pub successor_named: Option<Instant>,
}

impl Outage {
    /// Returns the earliest possible time of the loss: [`noticed`](Self::noticed) if the server
    /// streamed and either reported the change or failed with an error other than a timeout,
    /// otherwise [`last_writable`](Self::last_writable).
    pub fn earliest(&self) -> Instant {
        let is_told = match &self.loss {
            Loss::SteppedDown(_) => true,
            Loss::Failed(error) => !error.is_timeout(),
            Loss::Replaced(_) | Loss::Left => false,
        };
        if is_told && self.streamed { self.noticed } else { self.last_writable }
    }

    /// Returns bounds of the time without a writable server up to `end`. The lower bound counts
    /// from the time when the loss was noticed or the server became suspect, the upper bound from
    /// the [earliest](Self::earliest) possible time of the loss.
    pub fn without_primary(&self, end: Instant) -> Bounds {
        let silent = self.suspected.unwrap_or(self.noticed);
        Bounds { at_least: end.since(silent), at_most: end.since(self.earliest()) }
    }

    fn fmt_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = self.noticed.since(self.last_writable);
        write!(f, "{}; last seen writable {age:.3?} before", self.loss)
    }
}

/// An outage that has ended, or a change of primary without an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failover {
    /// The outage before the failover. If the new primary was found before the loss of the old
    /// primary was noticed, the loss counts as noticed when the new primary was found.
    pub outage: Outage,
    /// The primary that was found; `None` if the topology has no primaries.
    pub new: Option<ServerAddress>,
    /// The election id of the new primary.
    pub election_id: Option<ObjectId>,
    /// The time when the new primary was found, so that writes became possible again.
    pub writable_again: Instant,
}

impl Failover {
    /// Returns the time without a writable server.
    pub fn without_primary(&self) -> Bounds {
        self.outage.without_primary(self.writable_again)
    }

    /// Returns whether, at `now`, the old primary may still report that it stepped down; see
    /// [`Fact::FailoverExplained`].
    pub(crate) fn may_be_explained(&self, now: Instant) -> bool {
        let is_replaced = matches!(self.outage.loss, Loss::Replaced(_));
        is_replaced && self.outage.streamed && now.since(self.writable_again) <= MOMENT
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SteppedDown(now) => write!(f, "it stepped down and is {now} now"),
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Replaced(new) => write!(f, "replaced by {new}"),
            Self::Left => f.write_str("it is not a member any more"),
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_least, at_most } = self;
        if at_least == at_most {
            write!(f, "{at_least:.3?}")
        } else if at_least.is_zero() {
            write!(f, "up to {at_most:.3?}")
        } else {
            write!(f, "{at_least:.3?} to {at_most:.3?}")
        }
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lost {
            Some(address) => write!(f, "primary {address} lost: ")?,
            None => f.write_str("no writable server: ")?,
        }
        self.fmt_cause(f)
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
        write!(f, ", {} without primary: ", self.without_primary())?;
        self.outage.fmt_cause(f)
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
            Self::FailoverExplained(failover) => write!(f, "explained: {failover}"),
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
