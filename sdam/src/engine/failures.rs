//! A server's first and last error, which appear in the error messages of selections that time out.

use sdam_core::{error::Error, server::ServerDescription, time::Instant};

/// A server's error and the time when it was processed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFailure {
    /// The error.
    pub error: Error,
    /// The time at which the topology processed the error, as measured by its runtime's clock.
    pub at: Instant,
}

/// The first and the last error of a server. They often differ: the error that began an outage is
/// soon followed by others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFailures {
    /// The first error since the server was last available; `None` while it is available.
    pub first: Option<ServerFailure>,
    /// The last error, even if the server has been available since.
    pub last: Option<ServerFailure>,
}

impl ServerFailures {
    /// Updates the recorded errors to reflect the server's new description, as of `now`.
    pub(crate) fn observe(&mut self, new: &ServerDescription, now: Instant) {
        if let Some(error) = &new.error {
            let failure = ServerFailure { error: error.clone(), at: now };
            self.first.get_or_insert_with(|| failure.clone());
            self.last = Some(failure);
        } else if new.server_type.is_available() {
            self.first = None;
        }
    }
}
