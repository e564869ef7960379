//! The inputs of a deployment.

use crate::{
    address::ServerAddress,
    document::SharedDocument,
    error::Error,
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    output::ConnId,
    srv::SrvRecords,
    time::Instant,
};

/// An input of [`Deployment::handle`](super::Deployment::handle).
#[derive(Debug)]
pub enum Input<'a> {
    /// Opens the topology: publishes the opening events and opens the seeds. Later repetitions are
    /// ignored.
    Open,
    /// Closes the topology: ends every heartbeat, closes every connection and pool, publishes the
    /// closing events and ignores all later inputs.
    Close,
    /// The deadline of the timer is reached. Answers that have arrived are passed before, so that a
    /// reply that waits in a socket since the host was suspended counts.
    ///
    /// Passed too early it has no effect.
    Due {
        /// The timer.
        timer: Timer,
        /// True if selections are waiting, so that an idle server is checked as soon as
        /// `minHeartbeatFrequencyMS` allows.
        wanted: bool,
    },
    /// A connection is open.
    Connected {
        /// The connection.
        conn: ConnId,
    },
    /// A reply has arrived.
    Reply {
        /// The connection.
        conn: ConnId,
        /// The instant at which the request was written, or reading began without one.
        sent: Instant,
        /// The instant at which the reply had arrived.
        at: Instant,
        /// The parsed reply, or what makes it an error.
        hello: Result<Hello, Error>,
        /// The reply, a BSON document. Only that of a check is used.
        bytes: SharedDocument,
        /// True if the server will send another reply without a request.
        more_to_come: bool,
    },
    /// A connection could not be opened, or broke.
    ///
    /// An error of kind [`Internal`](crate::error::ErrorKind::Internal) tells that the transport has
    /// panicked. A check then makes its server Unknown, the pool is not cleared, and the next check
    /// begins `minHeartbeatFrequencyMS` later.
    Failed {
        /// The connection.
        conn: ConnId,
        /// The instant of the failure.
        at: Instant,
        /// The error.
        error: Error,
    },
    /// The task that watched the server was dropped by its runtime, so no answer of its connections
    /// will come. The server is Unknown from now on and is not checked again.
    Deserted {
        /// The server.
        server: ServerId,
    },
    /// An immediate check of the server is requested.
    #[doc(alias = "requestImmediateCheck")]
    CheckRequested {
        /// The server.
        server: ServerId,
    },
    /// The caller has left the running check of the server unattended for so long that its outcome
    /// would be meaningless. It ends without one, and another one may begin at once.
    ///
    /// For [inline checks](super::Deployment::with_inline_checks), like the next two.
    Abandoned {
        /// The server.
        server: ServerId,
    },
    /// The connection was closed between two checks by an operation that shares it. This says
    /// nothing about the server.
    ConnectionLost {
        /// The connection.
        conn: ConnId,
    },
    /// An operation that shares the connection has authenticated on it. The connection then
    /// survives an overloaded server's refusal to answer a check (SDAM: "SystemOverloadedError").
    Authenticated {
        /// The connection.
        conn: ConnId,
    },
    /// A pooled connection has been opened and its handshake was answered.
    ///
    /// Behind a load balancer the connection is counted for the service in the reply, and its
    /// generation is from now on that of the [service](super::Deployment::generation).
    Handshake {
        /// The server of the connection.
        server: ServerId,
        /// The generation the connection was opened under; ignored behind a load balancer.
        generation: Generation,
        /// The parsed reply.
        hello: Hello,
        /// The reply, a BSON document.
        reply: &'a [u8],
    },
    /// A connection to a service behind a load balancer was closed. Its handshake was an earlier
    /// input. The service is forgotten with its last connection (CMAP: "Load Balancer Mode").
    ServiceConnectionClosed {
        /// The load balancer.
        server: ServerId,
        /// The service.
        service: ObjectId,
        /// The generation of the connection.
        generation: Generation,
    },
    /// The look-up of the SRV record has ended.
    LookedUp(Result<SrvRecords, Error>),
    /// The hosts of an SRV record that the caller has looked up and validated. They are sampled by
    /// `srvMaxHosts`.
    Hosts(&'a [ServerAddress]),
    /// A driver has checked the server by its own means.
    ///
    /// A reply has the effects of a handshake on a new connection. An error is that of a failed check.
    Played {
        /// The server.
        server: ServerId,
        /// The parsed reply with its BSON document, or the error.
        outcome: Result<(Hello, &'a [u8]), Error>,
        /// The round-trip time of the reply.
        rtt: core::time::Duration,
    },
}

/// A timer of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The timer of a server's checks and measurements.
    Server(ServerId),
    /// The timer of the look-ups of the SRV record.
    Srv,
}
