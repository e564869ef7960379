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
    names,
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

pub use self::audit::audit;

names! {
    /// An invariant, and its name in tables and files. The design documents refer to some
    /// invariants by the numbers `P1` to `P10`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Oracle {
        /// P1: there is at most one primary, and the topology type agrees with the servers.
        OnePrimary = "P1-one-primary",
        /// P2: an election is only replaced by a newer one.
        Election = "P2-election",
        /// P3: every selectable server's pool is ready, and a failed server's pool is cleared.
        Pools = "P3-pools",
        /// P4: event numbers and pool generations have no gaps.
        Sequence = "P4-sequence",
        /// P5: every heartbeat that was started ends exactly once.
        Heartbeats = "P5-heartbeats",
        /// P6: checks are neither too early nor too late.
        Cadence = "P6-cadence",
        /// P7: no task, pool, timer or connection outlives its server.
        Leaks = "P7-leaks",
        /// P8: after all faults have been healed, the description matches the deployment.
        Convergence = "P8-convergence",
        /// P9: no selection waits while a suitable server exists, or waits longer than its timeout.
        Waiters = "P9-waiters",
        /// P10: closing a topology completes without delay.
        Close = "P10-close",
        /// Events are continuous: each change starts from the final state of the previous one.
        Continuity = "continuity",
        /// Known state is never replaced by older state.
        Freshness = "freshness",
        /// Every available server, except a load balancer, has a round-trip time. Selection needs
        /// it to compare servers.
        RoundTrip = "round-trip",
        /// Reported errors have the effects that SDAM specifies.
        Errors = "errors",
        /// If TLS is enabled, no plain text is sent. If a proxy is configured, all connections use
        /// it.
        Wire = "wire",
        /// Each error names the stage at which it occurred.
        Stages = "stages",
        /// A command succeeds only if it gets its own reply. A connection that received any other
        /// message is not used again.
        Replies = "replies",
        /// Selected servers are suitable, and every selection that was started ends exactly once.
        Selection = "selection",
        /// The numbers of tasks, timers, connections and undelivered events are bounded.
        Memory = "memory",
        /// No task runs too often, and tasks do not run endlessly while no time passes.
        BusyLoop = "busy-loop",
        /// Nothing panics.
        Panic = "panic",
        /// A server is reported as silent only if it is known and does not answer, and the end of
        /// each silence is reported.
        Silence = "silence",
        /// The same seed yields the same run.
        Determinism = "determinism",
        /// Replaying the recorded inputs of a client reproduces its events.
        Replay = "replay",
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
