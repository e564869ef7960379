use alloc::sync::Arc;
use core::fmt;

use super::PoolClear;
use crate::{
    address::ServerAddress,
    error::{Labelled, ServerError},
};

/// A failed check-out, or an interrupted connection (CMAP: "Connection Pool Errors").
///
/// `{}` prints the text of the specification, in the letter case of its tests.
///
/// It says nothing about the server, so it is never reported to the topology and is not an
/// [`AppError`](crate::app_error::AppError). It carries no error label: a client with `retryWrites`
/// adds `RetryableWriteError` to an error that [is retryable](Self::is_retryable), because only the
/// client knows that option (Retryable Writes: "RetryableWriteError Labels").
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// The pool was cleared, and is paused or has evicted its wait queue (PoolClearedError).
    #[doc(alias = "PoolClearedError")]
    Cleared {
        /// The server of the pool.
        address: ServerAddress,
        /// The error that caused the clear.
        cause: Arc<ServerError>,
    },
    /// The pool has been paused since its creation: no check of its server has succeeded yet.
    NotReady {
        /// The server of the pool.
        address: ServerAddress,
    },
    /// The connection was in use or being established when the pool was cleared with
    /// [`interrupt_in_use`](PoolClear::interrupt_in_use).
    Interrupted {
        /// The server of the pool.
        address: ServerAddress,
    },
    /// The pool is closed (PoolClosedError).
    #[doc(alias = "PoolClosedError")]
    Closed {
        /// The server of the pool.
        address: ServerAddress,
    },
    /// No connection became available in time (WaitQueueTimeoutError).
    #[doc(alias = "WaitQueueTimeoutError")]
    TimedOut {
        /// The server of the pool.
        address: ServerAddress,
    },
    /// No connection to a load balancer became available in time; cursors and transactions pin
    /// connections (Load Balancers: "Wait Queue Timeout Errors").
    TimedOutPinned {
        /// The load balancer.
        address: ServerAddress,
        /// `maxPoolSize`.
        max_pool_size: u32,
        /// The number of connections in use by cursors.
        cursors: u32,
        /// The number of connections in use by transactions.
        transactions: u32,
        /// The number of connections in use by other operations.
        others: u32,
    },
}

impl PoolError {
    /// Returns the error after `clear` for check-outs from the pool of the server at `address`.
    pub fn cleared(address: ServerAddress, clear: &PoolClear) -> Self {
        let cause = Arc::clone(&clear.cause);
        Self::Cleared { address, cause }
    }

    /// Returns the server of the pool.
    pub fn address(&self) -> &ServerAddress {
        match self {
            Self::Cleared { address, .. }
            | Self::NotReady { address }
            | Self::Interrupted { address }
            | Self::Closed { address }
            | Self::TimedOut { address }
            | Self::TimedOutPinned { address, .. } => address,
        }
    }

    /// Returns whether a retryable operation is retried after this error.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Cleared { .. } | Self::NotReady { .. } | Self::Interrupted { .. } => true,
            Self::Closed { .. } | Self::TimedOut { .. } | Self::TimedOutPinned { .. } => false,
        }
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cleared { address, cause } => write!(
                f,
                "Connection pool for {address} was cleared because another operation failed with: \
                 {cause}"
            ),
            Self::NotReady { address } => {
                write!(f, "Connection pool for {address} is not ready yet")
            }
            Self::Interrupted { address } => write!(
                f,
                "Connection to {address} interrupted due to server monitor timeout"
            ),
            Self::Closed { .. } => {
                f.write_str("Attempted to check out a connection from closed connection pool")
            }
            Self::TimedOut { .. } => {
                f.write_str("Timed out while checking out a connection from connection pool")
            }
            Self::TimedOutPinned {
                max_pool_size,
                cursors,
                transactions,
                others,
                ..
            } => write!(
                f,
                "Timeout waiting for connection from the connection pool. maxPoolSize: \
                 {max_pool_size}, connections in use by cursors: {cursors}, connections in use by \
                 transactions: {transactions}, connections in use by other operations: {others}"
            ),
        }
    }
}

impl Labelled for PoolError {
    /// Returns false: the error comes from the pool and says nothing about the server.
    fn has_label(&self, _: &str) -> bool {
        false
    }
}

impl core::error::Error for PoolError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::{
        error::{ErrorKind, Stage},
        ids::Generation,
    };

    #[test]
    fn pool_errors_have_the_specified_texts_and_transient_ones_are_retryable() {
        // F-65, F-68, F-68b, L-36
        let address = || ServerAddress::new("a", 27017);
        let check = |error: PoolError, text: &str, retryable| {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.is_retryable(), retryable, "{text}");
            assert_eq!(*error.address(), address());
        };
        let cause = ServerError::new(ErrorKind::Network, Stage::Operation, "gone").shared();
        check(
            PoolError::cleared(address(), &PoolClear::new(Generation::FIRST, cause)),
            "Connection pool for a:27017 was cleared because another operation failed with: \
             network error at operation: gone",
            true,
        );
        check(
            PoolError::NotReady { address: address() },
            "Connection pool for a:27017 is not ready yet",
            true,
        );
        check(
            PoolError::Interrupted { address: address() },
            "Connection to a:27017 interrupted due to server monitor timeout",
            true,
        );
        check(
            PoolError::Closed { address: address() },
            "Attempted to check out a connection from closed connection pool",
            false,
        );
        check(
            PoolError::TimedOut { address: address() },
            "Timed out while checking out a connection from connection pool",
            false,
        );
        check(
            PoolError::TimedOutPinned {
                address: address(),
                max_pool_size: 10,
                cursors: 4,
                transactions: 3,
                others: 2,
            },
            "Timeout waiting for connection from the connection pool. maxPoolSize: 10, connections \
             in use by cursors: 4, connections in use by transactions: 3, connections in use by \
             other operations: 2",
            false,
        );
    }
}
