//! A server's first and last error, for the error messages of selections that time out.

use sdam_core::{error::Error, server::ServerDescription, time::Instant};

/// A server's error and the time when it was processed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFailure {
    /// The error.
    pub error: Error,
    /// The time at which the topology processed the error, by the clock of its runtime.
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
    /// Updates the errors from the server's new description, at time `now`.
    pub(crate) fn observe(&mut self, new: &ServerDescription, now: Instant) {
        if let Some(error) = &new.error {
            let failure = ServerFailure { error: error.clone(), at: now };
            self.first.get_or_insert_with(|| failure.clone());
            self.last = Some(failure);
        } else if new.server_type.is_available() {
            self.first = None;
        }
    }

    /// Updates the time of the last error after a failed check. A repeated error does not change
    /// the server's description, but it is still the last error.
    pub(crate) fn repeat(&mut self, now: Instant) {
        if let (Some(_), Some(last)) = (&self.first, &mut self.last) {
            last.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::{
        error::{ErrorKind, Stage},
        ids::ServerId,
        server::ServerType,
    };

    use super::*;

    fn server(error: Option<&str>) -> ServerDescription {
        let mut server = ServerDescription::unknown(ServerId::from_u64(1), "a:1".parse().unwrap());
        let error = error.map(|text| Error::new(ErrorKind::Network, Stage::Connect, text));
        if error.is_none() {
            server.server_type = ServerType::Standalone;
        }
        server.error = error;
        server
    }

    fn texts(failures: &ServerFailures) -> [Option<(&str, u64)>; 2] {
        [&failures.first, &failures.last].map(|failure| {
            let failure = failure.as_ref()?;
            Some((failure.error.message(), failure.at.as_nanos() / 1_000_000))
        })
    }

    #[test]
    fn the_first_error_is_kept_until_the_server_is_available_and_the_last_one_always() {
        let mut failures = ServerFailures::default();
        let mut check = |new: Option<&'static str>, at: u64, expected: [Option<(&str, u64)>; 2]| {
            failures.observe(&server(new), Instant::from_millis(at));
            assert_eq!(texts(&failures), expected, "at {at}");
        };
        check(None, 1, [None, None]);
        check(Some("x"), 2, [Some(("x", 2)), Some(("x", 2))]);
        check(Some("y"), 3, [Some(("x", 2)), Some(("y", 3))]);
        check(None, 4, [None, Some(("y", 3))]);
        check(Some("z"), 5, [Some(("z", 5)), Some(("z", 5))]);
    }

    #[test]
    fn a_repeated_error_updates_the_time_of_the_last_error() {
        let mut failures = ServerFailures::default();
        failures.repeat(Instant::from_millis(1));
        assert_eq!(texts(&failures), [None, None]);
        failures.observe(&server(Some("x")), Instant::from_millis(2));
        failures.repeat(Instant::from_millis(9));
        assert_eq!(texts(&failures), [Some(("x", 2)), Some(("x", 9))]);
    }
}
