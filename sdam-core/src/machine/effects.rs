//! The effects that a topology returns.

use alloc::sync::Arc;

use crate::{
    actions::Actions, address::ServerAddress, event::EventKind, ids::ServerId, pool::PoolClear,
    topology::TopologyDescription,
};

/// An action for the caller to perform.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Create the server's pool. Start its monitor after all other effects have run.
    OpenServer {
        /// The new server id.
        server: ServerId,
        /// The server's address.
        address: ServerAddress,
        /// True if the server must be monitored; a load balancer is not.
        monitored: bool,
    },
    /// Mark the server's pool ready. Not repeated until the pool has been cleared.
    PoolReady {
        /// The server id.
        server: ServerId,
    },
    /// Make this description visible to readers.
    Publish(Arc<TopologyDescription>),
    /// Append the event to the event queue.
    Emit(EventKind),
    /// Clear the server's pool.
    PoolClear {
        /// The server id.
        server: ServerId,
        /// The clear and its cause.
        clear: PoolClear,
    },
    /// Close the server's pool and stop its monitor.
    CloseServer {
        /// The server id.
        server: ServerId,
    },
    /// Reset the server's round-trip times: the server was lost, or its check has failed again.
    ResetRtt {
        /// The server id.
        server: ServerId,
    },
    /// Close the connection of the server's monitor, and cancel its running check.
    CancelCheck {
        /// The server id.
        server: ServerId,
    },
    /// Ask the server's monitor to check soon.
    #[doc(alias = "requestImmediateCheck")]
    RequestCheck {
        /// The server id.
        server: ServerId,
    },
}

/// Effects in the order in which they must run: open, ready, publish, emit, reset round-trip times,
/// clear, close, then all other effects on monitors.
///
/// "Ready before publish" means that no reader sees a selectable server with a paused pool. "Clear
/// after publish" means that no reader of the new description gets a connection of the old
/// generation (SDAM: "Why synchronize clearing a server's pool with updating the topology?"). The
/// opening events of a load-balanced topology come before the "ready" of its single pool, and
/// `TopologyClosed` comes last, because pools publish events while they close.
pub type Effects = Actions<Effect>;
