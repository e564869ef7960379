//! The intervals and timeouts of a simulated deployment.

use std::time::Duration;

/// The intervals of a deployment. By default, they are the same as mongod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// The interval between a member's heartbeats to the other members (`heartbeatIntervalMillis`).
    pub heartbeat_interval: Duration,
    /// The time after which a primary that cannot be reached is replaced (`electionTimeoutMillis`).
    pub election_timeout: Duration,
    /// The time from a step-down to the election of the successor.
    pub hand_over: Duration,
    /// The time that the winner of an election takes to catch up before it accepts writes.
    pub catch_up: Duration,
    /// The time that a process that has just started takes to join its set.
    pub startup: Duration,
    /// The interval at which an idle primary writes a no-op (M-43).
    pub no_op_interval: Duration,
    /// The time for which a server announces its shutdown before it ends
    /// (`shutdownTimeoutMillisForSignaledShutdown`).
    pub quiesce: Duration,
}

impl Timing {
    /// Returns short intervals for demonstrations and tests in real time. A dead primary is
    /// replaced within about a second.
    pub fn fast() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(100),
            election_timeout: Duration::from_millis(800),
            hand_over: Duration::from_millis(5),
            catch_up: Duration::from_millis(15),
            startup: Duration::from_millis(50),
            no_op_interval: Duration::from_secs(10),
            quiesce: Duration::from_millis(500),
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(2),
            election_timeout: Duration::from_secs(10),
            hand_over: Duration::from_millis(5),
            catch_up: Duration::from_millis(15),
            startup: Duration::from_millis(500),
            no_op_interval: Duration::from_secs(10),
            quiesce: Duration::from_secs(15),
        }
    }
}
