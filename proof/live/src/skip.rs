//! Skipping tests that cannot run.

use std::env;
use std::io::{self, Write};

use crate::error::Error;

/// The environment variable that turns a missing server into a failure.
const REQUIRED: &str = "SDAM_LIVE_REQUIRED";

/// Turns [`Error::Unavailable`] into `None`, and reports on standard error that the test is skipped
/// and why. The test harness does not capture this report.
///
/// # Errors
/// Returns every other error. If `SDAM_LIVE_REQUIRED=1` is in the environment, for machines on
/// which no test may be skipped, also returns [`Error::Unavailable`].
pub fn or_skip<T, E: Into<Error>>(started: Result<T, E>) -> Result<Option<T>, Error> {
    let required = env::var_os(REQUIRED).is_some_and(|value| value == "1");
    decide(started.map_err(E::into), required, &mut io::stderr())
}

fn decide<T>(
    started: Result<T, Error>,
    required: bool,
    out: &mut impl Write,
) -> Result<Option<T>, Error> {
    match started {
        Ok(value) => Ok(Some(value)),
        Err(Error::Unavailable(unavailable)) if !required => {
            // If standard error cannot be written to, there is nowhere to report it.
            let _ = writeln!(out, "SKIPPED a live test, {unavailable}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::decide;
    use crate::error::{Error, Unavailable};

    fn unavailable() -> Result<u8, Error> {
        Err(Error::Unavailable(Unavailable::new("no pip")))
    }

    #[test]
    fn a_missing_server_skips_the_test_with_the_reason() {
        let mut said = Vec::new();
        assert_eq!(decide(unavailable(), false, &mut said).unwrap(), None);
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said, "SKIPPED a live test, a server is not available: no pip\n");
    }

    #[test]
    fn a_missing_server_is_a_failure_where_one_is_required() {
        let error = decide(unavailable(), true, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
    }

    #[test]
    fn other_failures_and_successes_pass_through() {
        let mut said = Vec::new();
        let failed = Err::<u8, _>(Error::State("no".to_owned()));
        assert!(matches!(decide(failed, false, &mut said), Err(Error::State(_))));
        assert_eq!(decide(Ok(7), false, &mut said).unwrap(), Some(7));
        assert!(said.is_empty());
    }
}
