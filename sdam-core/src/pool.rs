//! The options of connection pools, and the parameters for clearing a pool (CMAP).

mod options;

pub use self::options::PoolOptions;
use crate::{
    error::Error,
    ids::{Generation, ObjectId},
};

/// The parameters and the cause of a clear (CMAP: "Clearing a Connection Pool").
///
/// Without a [`service_id`](Self::service_id), the clear also pauses the pool, and fails the
/// check-outs in its wait queue with [`Error::pool_cleared`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct PoolClear {
    /// The generation of connections opened after the clear.
    pub generation: Generation,
    /// The service that is cleared, behind a load balancer. Its connections become stale if their
    /// generation is below [`generation`](Self::generation).
    pub service_id: Option<ObjectId>,
    /// True if connections that are in use or being established are interrupted, too.
    #[doc(alias = "interruptInUseConnections")]
    pub interrupt_in_use: bool,
    /// True if the pool was already paused. Its generation still increases, but no event is
    /// published (CMAP: "Clearing a Connection Pool").
    pub was_paused: bool,
    /// The error that caused the clear.
    #[cfg_attr(feature = "serde", serde(rename = "error"))]
    pub cause: Error,
}

impl PoolClear {
    /// Creates a clear of the whole pool that does not interrupt connections in use.
    pub fn new(generation: Generation, cause: Error) -> Self {
        Self { generation, service_id: None, interrupt_in_use: false, was_paused: false, cause }
    }
}
