use std::fmt;

use sdam_core::{
    error::{Labelled, ServerError},
    pool::PoolError,
};
use sdam_transport::pool::ConnectionError;

/// The error of a check-out, or of a command on a pooled connection.
///
/// The topology has already processed it, so the caller does not report it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The pool cannot provide a connection, or a clear interrupted the connection. The error says
    /// nothing about the server's state.
    Pool(PoolError),
    /// The connection could not be established, or it broke, or the server answered the command
    /// with an error.
    Connection(ConnectionError),
    /// The pool's runtime ended before the pool was closed.
    RuntimeShutDown,
}

impl Error {
    /// Returns whether a time limit was exceeded: in the wait queue, while connecting, or while
    /// waiting for a reply.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Pool(PoolError::TimedOut { .. } | PoolError::TimedOutPinned { .. }) => true,
            Self::Pool(_) | Self::RuntimeShutDown => false,
            Self::Connection(error) => error.is_timeout(),
        }
    }

    /// Returns the reply to the command, a BSON document, if the server answered with an error.
    pub fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Connection(error) => error.body(),
            Self::Pool(_) | Self::RuntimeShutDown => None,
        }
    }

    /// Returns whether a read may be retried after this error; see
    /// [`ServerError::is_retryable_read`].
    pub fn is_retryable_read(&self) -> bool {
        match self {
            Self::Pool(error) => error.is_retryable(),
            Self::Connection(error) => error.error.is_retryable_read(),
            Self::RuntimeShutDown => false,
        }
    }

    /// Returns whether a write with a transaction number may be retried after this error on a
    /// server with this maximum wire version; see [`ServerError::is_retryable_write`].
    pub fn is_retryable_write(&self, max_wire_version: i32) -> bool {
        match self {
            Self::Pool(error) => error.is_retryable(),
            Self::Connection(error) => error.error.is_retryable_write(max_wire_version),
            Self::RuntimeShutDown => false,
        }
    }

    /// Returns the error of the server or of the connection to it, if there is one.
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Connection(error) => Some(&error.error),
            Self::Pool(_) | Self::RuntimeShutDown => None,
        }
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

impl Labelled for Error {
    fn has_label(&self, label: &str) -> bool {
        let error = self.server_error();
        error.is_some_and(|error| error.has_label(label))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::RuntimeShutDown => {
                f.write_str("the runtime of the connection pool has shut down")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pool(error) => Some(error),
            Self::Connection(error) => Some(error),
            Self::RuntimeShutDown => None,
        }
    }
}
