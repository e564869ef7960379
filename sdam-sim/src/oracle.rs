//! Rules that the record of a topology keeps, whatever happened to it.
//!
//! [`audit`] judges a whole record: every event of a closed topology and every call to its pools.
//! It knows nothing of simulation, so tests on real servers use it, too.

mod audit;
mod selections;
#[cfg(test)]
mod tests;

use std::fmt;

use sdam_core::{
    ids::ServerId,
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

pub use self::audit::audit;

/// A rule that never may be broken. `P1` to `P10` are the names the design gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Oracle {
    /// P1: at most one primary, and the topology type says whether there is one.
    OnePrimary,
    /// P2: elections are only ever replaced by newer ones.
    Election,
    /// P3: every selectable server's pool is ready, and pools are cleared when their server is
    /// lost.
    Pools,
    /// P4: numbers of events and generations of pools have no gaps.
    Sequence,
    /// P5: every heartbeat that was started ends exactly once.
    Heartbeats,
    /// P6: checks come neither too soon nor too late.
    Cadence,
    /// P7: no task, pool, timer or connection outlives its server.
    Leftovers,
    /// P8: once faults are healed, the description becomes the truth.
    Truth,
    /// P9: nobody waits while there is what they wait for, or longer than they want.
    Waiters,
    /// P10: closing ends.
    Close,
    /// Events tell a story without gaps: each change begins where the last one ended.
    Story,
    /// What is known is never replaced by something older.
    Freshness,
    /// Every available server has a round-trip time, or it could not be compared with others; load
    /// balancers are never compared.
    RoundTrip,
    /// Reported errors have the consequences that they are known to have.
    Errors,
    /// What is selected suits, and every selection that was started ends exactly once.
    Selection,
    /// Memory is bounded: tasks, timers, connections, events that wait for delivery.
    Memory,
    /// Nothing goes on without end while no time passes, or too often.
    BusyLoop,
    /// Nothing panics.
    Panic,
    /// The same seed yields the same run.
    Determinism,
}

impl Oracle {
    /// One word, as tables and files name the rule.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnePrimary => "P1-one-primary",
            Self::Election => "P2-election",
            Self::Pools => "P3-pools",
            Self::Sequence => "P4-sequence",
            Self::Heartbeats => "P5-heartbeats",
            Self::Cadence => "P6-cadence",
            Self::Leftovers => "P7-leftovers",
            Self::Truth => "P8-truth",
            Self::Waiters => "P9-waiters",
            Self::Close => "P10-close",
            Self::Story => "story",
            Self::Freshness => "freshness",
            Self::RoundTrip => "round-trip",
            Self::Errors => "errors",
            Self::Selection => "selection",
            Self::Memory => "memory",
            Self::BusyLoop => "busy-loop",
            Self::Panic => "panic",
            Self::Determinism => "determinism",
        }
    }

    /// The violation of this rule at `at`.
    pub fn violated(self, at: Instant, message: impl Into<String>) -> Violation {
        Violation {
            oracle: self,
            at,
            message: message.into(),
        }
    }
}

/// The first server of `topology` that is available and has no round-trip time, though it can be
/// compared with others ([`Oracle::RoundTrip`]).
pub fn unmeasured(topology: &TopologyDescription) -> Option<&ServerDescription> {
    let mut servers = topology.servers().iter();
    let unmeasured = servers.find(|server| {
        server.server_type.is_available()
            && server.server_type != ServerType::LoadBalancer
            && server.rtt.is_none()
    });
    unmeasured.map(|server| &**server)
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The rule.
    pub oracle: Oracle,
    /// When it was found to be broken.
    pub at: Instant,
    /// How.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}: {}", self.oracle, self.at, self.message)
    }
}

impl std::error::Error for Violation {}

/// What a pool was told.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolCall {
    /// Connections may be opened.
    Ready,
    /// Connections of earlier generations are stale.
    Clear(PoolClear),
    /// The server has left.
    Close,
}

/// The calls to all pools of a topology, in order.
pub type PoolCalls = Vec<(ServerId, PoolCall)>;
