//! Polling for changes in other processes, which send no notifications.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// The timeout of every wait. It is generous, because a machine with few cores may run many tests
/// at once, and a long timeout only delays the report of a failure.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// The timeout of a single command.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Calls a function until it returns a value.
///
/// # Errors
/// Returns a [final](is_final) error immediately. Any other error is returned if it still occurs
/// after [`TIMEOUT`].
pub(crate) fn poll<T>(
    awaited: &str,
    mut ask: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let begin = Instant::now();
    loop {
        let last = match ask() {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => None,
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => Some(Box::new(error)),
        };
        let waited = begin.elapsed();
        if waited >= TIMEOUT {
            return Err(Error::TimedOut { awaited: awaited.to_owned(), waited, last });
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns whether the error is permanent, so that polling cannot help.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Unavailable(_) | Error::Exited(_) | Error::State(_) | Error::TimedOut { .. } => true,
        Error::Command(_) | Error::Io(..) | Error::Protocol(_) => false,
    }
}
