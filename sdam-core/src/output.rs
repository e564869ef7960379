//! The outputs of a deployment, to which all of its parts contribute.

use alloc::sync::Arc;

use crate::{
    actions::Actions, address::ServerAddress, event::EventKind, hello::HelloRequest, ids::ServerId,
    input::ConnId, pool::PoolClear, time::Instant, topology::TopologyDescription,
};

/// An action for the caller to perform.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open a connection; answer with `Connected` or `Failed`.
    Connect {
        /// The new connection.
        conn: ConnId,
        /// The time at which the attempt fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Send the request and read one reply; answer with `Reply` or `Failed`.
    Send {
        /// The connection.
        conn: ConnId,
        /// The request.
        request: HelloRequest,
        /// The time at which the request fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Read one more reply without sending anything; answer with `Reply` or `Failed`.
    Read {
        /// The connection.
        conn: ConnId,
        /// The time at which reading fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Cancel the operation in progress, if there is one, and close the connection.
    Disconnect {
        /// The connection.
        conn: ConnId,
    },
    /// Read the server's deadline again. A call that concerned neither the server's timer nor its
    /// connections has brought the deadline forward.
    Wake {
        /// The server.
        server: ServerId,
    },
    /// Create the server's pool. If the server is monitored, pass `Due` for it after all outputs
    /// have run.
    OpenServer {
        /// The id of the new server.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// True if the server is checked; false for a load balancer.
        monitored: bool,
    },
    /// Close the server's pool. The server's other connections are already closed, and no later
    /// output names the server.
    CloseServer {
        /// The server id.
        server: ServerId,
    },
    /// Mark the server's pool ready. Once the pool is ready, this output is repeated only after a
    /// clear.
    PoolReady {
        /// The server id.
        server: ServerId,
    },
    /// Clear the server's pool.
    PoolClear {
        /// The server id.
        server: ServerId,
        /// The clear and its cause.
        clear: PoolClear,
    },
    /// Make this description visible to readers.
    Publish(Arc<TopologyDescription>),
    /// Append the event to the event queue.
    Emit(EventKind),
    /// Look up the SRV records of the name. Answer with `LookedUp`, which contains an error if
    /// there is no answer by the deadline.
    LookUp {
        /// The name of the record.
        name: Arc<str>,
        /// The time at which the look-up fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Select a suitable server from the current description; answer with `Chosen`.
    Choose,
    /// Send `ping` on the connection of the server's checks, and close the connection if it breaks
    /// or times out; answer with `Probed`.
    Probe {
        /// The server.
        server: ServerId,
    },
    /// The request has ended. A selection returns the chosen server.
    Finish(Result<Option<ServerId>, ScanFailure>),
}

/// The reason why server selection fails in inline mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanFailure {
    /// A server and the client have no wire version in common.
    Incompatible,
    /// `serverSelectionTimeoutMS` has passed, or will pass before servers may be checked again.
    Timeout,
    /// One scan found no suitable server, and `serverSelectionTryOnce` allows only one.
    TriedOnce,
}

/// Outputs in the order in which they must run: open, ready, publish, emit, clear, close.
///
/// "Ready before publish" means that no reader sees a selectable server with a paused pool. "Clear
/// after publish" means that no reader of the new description gets a connection of the old
/// generation (SDAM: "Why synchronize clearing a server's pool with updating the topology?"). The
/// event that ends a heartbeat precedes the consequences of the heartbeat, and `TopologyClosed`
/// comes last.
pub type Outputs = Actions<Output>;

impl Outputs {
    pub(crate) fn emit(&mut self, event: EventKind) {
        self.push(Output::Emit(event));
    }
}
