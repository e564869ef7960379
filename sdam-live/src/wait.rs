//! Waiting for other processes, which give no sign that could be awaited.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// How long anything is waited for. Generous, as it only bounds the time until a failure is
/// reported: a machine may run many such tests on few cores.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How long one command may take.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(25);

/// Asks until there is an answer.
///
/// # Errors
/// Those that [are final](is_final) at once, any other one if it is still there after
/// [`PATIENCE`].
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
        if waited >= PATIENCE {
            return Err(Error::TimedOut {
                awaited: awaited.to_owned(),
                waited,
                last,
            });
        }
        thread::sleep(PAUSE);
    }
}

/// Whether asking again cannot help.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Unavailable(_) | Error::Exited(_) | Error::State(_) | Error::TimedOut { .. } => true,
        Error::Command(_) | Error::Io(..) | Error::Protocol(_) => false,
    }
}
