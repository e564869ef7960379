//! Errors of connection pools (CMAP: "Connection Pool Errors").
//!
//! The messages are those of the specification, capitalized as in its tests. The errors say nothing
//! about the server, so they are never reported to the topology. They carry no label: a client with
//! `retryWrites` adds `RetryableWriteError` to retryable ones, because pools do not know that
//! option (Retryable Writes: "RetryableWriteError Labels").

use alloc::{boxed::Box, format};

use super::{Error, ErrorKind, Stage};
use crate::address::ServerAddress;

impl Error {
    /// Creates the error for check-outs from a pool that was cleared because of `cause`, which
    /// becomes the source.
    pub fn pool_cleared(address: &ServerAddress, cause: &Self) -> Self {
        let text = format!(
            "Connection pool for {address} was cleared because another operation failed with"
        );
        Self::of_pool(ErrorKind::PoolCleared, address, text).with_source(cause.clone())
    }

    /// Creates the error for check-outs from a pool that has not been ready yet.
    pub fn pool_not_ready(address: &ServerAddress) -> Self {
        let text = format!("Connection pool for {address} is not ready yet");
        Self::of_pool(ErrorKind::PoolNotReady, address, text)
    }

    /// Creates the error for check-outs from a closed pool.
    pub fn pool_closed(address: &ServerAddress) -> Self {
        let text = "Attempted to check out a connection from closed connection pool";
        Self::of_pool(ErrorKind::PoolClosed, address, text)
    }

    /// Creates the error for a connection that became stale while it was opened, because the pool
    /// was cleared.
    pub fn stale_connection(address: &ServerAddress) -> Self {
        let text =
            format!("Connection pool for {address} was cleared while a connection was opened");
        Self::of_pool(ErrorKind::PoolCleared, address, text)
    }

    /// Creates the error for a connection that was interrupted because the server's monitor got no
    /// answer ([`interrupt_in_use`](crate::pool::PoolClear::interrupt_in_use)).
    pub fn interrupted(address: &ServerAddress) -> Self {
        let text = format!("Connection to {address} interrupted due to server monitor timeout");
        Self::of_pool(ErrorKind::Interrupted, address, text)
    }

    /// Creates the error for a check-out that has waited too long.
    pub fn wait_queue_timeout(address: &ServerAddress) -> Self {
        let text = "Timed out while checking out a connection from connection pool";
        Self::of_pool(ErrorKind::WaitQueueTimeout, address, text)
    }

    /// Creates the error for a check-out that has waited too long for a load balancer's pool.
    /// Cursors and transactions pin connections, so the message states how many connections are in
    /// use for each purpose (Load Balancers: "Wait Queue Timeout Errors").
    pub fn wait_queue_timeout_pinned(
        address: &ServerAddress,
        max_pool_size: u32,
        cursors: u32,
        transactions: u32,
        others: u32,
    ) -> Self {
        let text = format!(
            "Timeout waiting for connection from the connection pool. maxPoolSize: \
             {max_pool_size}, connections in use by cursors: {cursors}, connections in use by \
             transactions: {transactions}, connections in use by other operations: {others}"
        );
        Self::of_pool(ErrorKind::WaitQueueTimeout, address, text)
    }

    /// Creates the error for a check-out from a pool whose runtime has ended.
    pub fn pool_shut_down(address: &ServerAddress) -> Self {
        let text = "the runtime of the connection pool has shut down";
        Self::of_pool(ErrorKind::RuntimeShutDown, address, text)
    }

    /// Returns whether this is a temporary error from a pool, after which a retryable operation is
    /// retried.
    pub fn is_retryable_pool(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::PoolCleared | ErrorKind::PoolNotReady | ErrorKind::Interrupted
        )
    }

    fn of_pool(kind: ErrorKind, address: &ServerAddress, text: impl Into<Box<str>>) -> Self {
        let stage = match kind {
            ErrorKind::Interrupted => Stage::Operation,
            _ => Stage::CheckOut,
        };
        Self::new(kind, stage, text).with_address(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_specification_and_some_errors_are_retryable() {
        // The specifications prescribe each message (F-65, F-68, F-68b, L-36).
        let address = ServerAddress::new("a", 27017);
        let check = |error: Error, kind, text: &str, retryable| {
            assert_eq!(format!("{error:#}"), text);
            assert_eq!(error.kind(), kind);
            let is_in_use = kind == ErrorKind::Interrupted;
            let stage = if is_in_use { Stage::Operation } else { Stage::CheckOut };
            assert_eq!(error.stage(), stage);
            assert_eq!(error.is_retryable_pool(), retryable, "{text}");
            assert_eq!(error.is_retryable_read(), retryable, "{text}");
            assert_eq!(error.is_retryable_write(21), retryable, "{text}");
            assert_eq!(error.address(), Some(&address));
            assert_eq!(error.labels().len(), 0);
        };
        let cause = Error::network(Stage::Operation, "gone");
        let cleared = Error::pool_cleared(&address, &cause);
        assert_eq!(cleared.source_as(), Some(&cause));
        let text = "Connection pool for a:27017 was cleared because another operation failed with: \
                    network error at operation: gone";
        check(cleared, ErrorKind::PoolCleared, text, true);
        check(
            Error::stale_connection(&address),
            ErrorKind::PoolCleared,
            "Connection pool for a:27017 was cleared while a connection was opened",
            true,
        );
        check(
            Error::pool_not_ready(&address),
            ErrorKind::PoolNotReady,
            "Connection pool for a:27017 is not ready yet",
            true,
        );
        check(
            Error::interrupted(&address),
            ErrorKind::Interrupted,
            "Connection to a:27017 interrupted due to server monitor timeout",
            true,
        );
        check(
            Error::pool_closed(&address),
            ErrorKind::PoolClosed,
            "Attempted to check out a connection from closed connection pool",
            false,
        );
        check(
            Error::wait_queue_timeout(&address),
            ErrorKind::WaitQueueTimeout,
            "Timed out while checking out a connection from connection pool",
            false,
        );
        check(
            Error::wait_queue_timeout_pinned(&address, 10, 4, 3, 2),
            ErrorKind::WaitQueueTimeout,
            "Timeout waiting for connection from the connection pool. maxPoolSize: 10, connections \
             in use by cursors: 4, connections in use by transactions: 3, connections in use by \
             other operations: 2",
            false,
        );
    }
}
