//! Invariants that the record of a topology must satisfy.
//!
//! [`audit`] checks a complete record: every event of a closed topology and every call to its
//! pools. It does not depend on the simulation, so tests with real servers also use it.

mod audit;
mod selections;
#[cfg(test)]
mod tests;

use sdam_core::{
    ids::ServerId,
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

pub use self::audit::audit;

/// An invariant, and its name in tables and files. The design documents refer to some
/// invariants by the numbers `P1` to `P10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[derive(strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Oracle {
    /// P1: there is at most one primary, and the topology type agrees with the servers.
    #[strum(serialize = "P1-one-primary")]
    OnePrimary,
    /// P2: an election is only replaced by a newer one.
    #[strum(serialize = "P2-election")]
    Election,
    /// P3: every selectable server's pool is ready, and a failed server's pool is cleared.
    #[strum(serialize = "P3-pools")]
    Pools,
    /// P4: event numbers and pool generations have no gaps.
    #[strum(serialize = "P4-sequence")]
    Sequence,
    /// P5: every heartbeat that was started ends exactly once.
    #[strum(serialize = "P5-heartbeats")]
    Heartbeats,
    /// P6: checks are neither too early nor too late.
    #[strum(serialize = "P6-cadence")]
    Cadence,
    /// P7: no task, pool, timer or connection outlives its server.
    #[strum(serialize = "P7-leaks")]
    Leaks,
    /// P8: after all faults have been healed, the description matches the deployment.
    #[strum(serialize = "P8-convergence")]
    Convergence,
    /// P9: no selection waits while a suitable server exists, or waits longer than its timeout.
    #[strum(serialize = "P9-waiters")]
    Waiters,
    /// P10: closing a topology completes without delay.
    #[strum(serialize = "P10-close")]
    Close,
    /// Events are continuous: each change starts from the final state of the previous one.
    Continuity,
    /// Known state is never replaced by older state.
    Freshness,
    /// Every available server, except a load balancer, has a round-trip time. Selection needs
    /// it to compare servers.
    RoundTrip,
    /// Reported errors have the effects that SDAM specifies.
    Errors,
    /// If TLS is enabled, no plain text is sent. If a proxy is configured, all connections use
    /// it.
    Wire,
    /// Each error names the stage at which it occurred.
    Stages,
    /// A command succeeds only if it gets its own reply. A connection that received any other
    /// message is not used again.
    Replies,
    /// Selected servers are suitable, and every selection that was started ends exactly once.
    Selection,
    /// The numbers of tasks, timers, connections and undelivered events are bounded.
    Memory,
    /// No task runs too often, and tasks do not run endlessly while no time passes.
    BusyLoop,
    /// Nothing panics.
    Panic,
    /// A server is reported as silent only if it is known and does not answer, and the end of
    /// each silence is reported.
    Silence,
    /// The same seed yields the same run.
    Determinism,
    /// Replaying the recorded inputs of a client reproduces its events.
    Replay,
}

impl Oracle {
    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Oracle {
    /// Creates a violation of this invariant at `at`.
    pub fn violated(self, at: Instant, message: impl Into<String>) -> Violation {
        Violation { oracle: self, at, message: message.into() }
    }
}

/// Returns the first available server of `topology` that has no round-trip time, although selection
/// would compare its round-trip time with those of other servers ([`Oracle::RoundTrip`]).
pub fn without_round_trip_time(topology: &TopologyDescription) -> Option<&ServerDescription> {
    let mut servers = topology.servers().iter();
    let without_round_trip_time = servers.find(|server| {
        server.server_type.is_available()
            && server.server_type != ServerType::LoadBalancer
            && server.rtt.is_none()
    });
    without_round_trip_time.map(|server| &**server)
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{oracle} at {at:?}: {message}")]
pub struct Violation {
    /// The violated invariant.
    pub oracle: Oracle,
    /// The time at which the violation was detected.
    pub at: Instant,
    /// A description of the violation.
    pub message: String,
}

/// A call to a connection pool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PoolCall {
    /// Connections may be opened.
    Ready,
    /// Connections of earlier generations are stale.
    Clear(PoolClear),
    /// The server has been removed.
    Close,
}

/// The calls to all pools of a topology, in order.
pub type PoolCalls = Vec<(ServerId, PoolCall)>;
