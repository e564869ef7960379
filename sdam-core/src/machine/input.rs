//! The inputs to the topology machine.

use crate::{
    address::ServerAddress,
    error::Error,
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    server::Rtt,
};

/// An input to the topology machine.
#[derive(Debug)]
pub enum Input<'a> {
    /// Opens the topology: publishes the opening events and adds the seeds as servers. Repetitions
    /// are ignored.
    Open,
    /// A check has ended. Ignored for a load balancer.
    Checked {
        /// The id of the checked server.
        server: ServerId,
        /// The reply or the error.
        outcome: Result<Hello, Error>,
        /// The server's round-trip times after the check; present if the check succeeded.
        rtt: Option<Rtt>,
    },
    /// A pooled connection was opened and its handshake was answered.
    ///
    /// Behind a load balancer, the connection is counted for the service in the reply, and takes
    /// the generation of that service.
    Handshake {
        /// The id of the connection's server.
        server: ServerId,
        /// The generation under which the connection was opened; ignored behind a load balancer.
        generation: Generation,
        /// The reply.
        hello: Hello,
        /// The server's round-trip times, as measured by its monitor.
        rtt: Option<Rtt>,
    },
    /// A connection to a service behind a load balancer, reported earlier as `Handshake`, was
    /// closed. The service is forgotten when its last connection is closed (CMAP: "Load Balancer
    /// Mode").
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service.
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// The hosts from a look-up of the SRV record, already validated and sampled.
    Hosts(&'a [ServerAddress]),
    /// A server's check ended because of a fault in this program: its transport has panicked, or
    /// its task was dropped. The next check, if there is one, comes no sooner than
    /// `minHeartbeatFrequencyMS` from now. Ignored for a load balancer.
    MonitorDied {
        /// The id of the monitored server.
        server: ServerId,
    },
    /// Closes the topology: removes every server, publishes the closing events and ignores all
    /// later inputs.
    Close,
}
