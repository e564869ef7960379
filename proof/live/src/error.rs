//! Errors of test servers, skipping tests that cannot run, and polling for changes in other
//! processes, which send no notifications.

use std::env;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use bson::Document;

/// An error that occurred when a server was started or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server is not available on this machine, so the test cannot run; see
    /// [`or_skip`](crate::or_skip).
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A server answered a command with `ok: 0`.
    #[error(transparent)]
    Command(Box<CommandError>),
    /// An operation on a socket, file or process failed. The string describes the operation.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// A reply was not a valid OP_MSG, or lacks a mandatory field.
    #[error("{0}")]
    Protocol(String),
    /// A server process exited unexpectedly. The message includes the end of the server's log.
    #[error("{0}")]
    Exited(String),
    /// A wait timed out.
    #[error(
        "timed out after {} s waiting for {awaited}{}",
        waited.as_secs(),
        last.as_ref().map(|last| format!("; last: {last}")).unwrap_or_default()
    )]
    TimedOut {
        /// The awaited event.
        awaited: String,
        /// The duration of the wait.
        waited: Duration,
        /// The last error during the wait.
        last: Option<Box<Error>>,
    },
    /// The operation is not possible in the current state. For example, a dead server cannot be
    /// signalled.
    #[error("{0}")]
    State(String),
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io(doing, source)
    }

    /// Returns the error code of the server's reply, if there is one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Command(error) => Some(error.code),
            Self::TimedOut { last, .. } => last.as_ref().and_then(|last| last.code()),
            _ => None,
        }
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        Self::Command(Box::new(error))
    }
}

/// A server is not available on this machine; the reason names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server is not available: {reason}")]
pub struct Unavailable {
    /// The missing item and the remedy, in one or two sentences.
    pub reason: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// A reply with `ok: 0`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{command} failed: {message} ({code_name}, {code})")]
pub struct CommandError {
    /// The command's name.
    pub command: String,
    /// The server's error code; 0 if the reply has none.
    pub code: i32,
    /// The name of the code, such as `NotWritablePrimary`.
    pub code_name: String,
    /// The server's message.
    pub message: String,
    /// The whole reply, with `errorLabels` and `topologyVersion`.
    pub reply: Document,
}

impl CommandError {
    pub(crate) fn from_reply(command: &str, reply: Document) -> Self {
        let text = |key| reply.get_str(key).unwrap_or_default().to_owned();
        Self {
            command: command.to_owned(),
            code: reply.get_i32("code").unwrap_or_default(),
            code_name: text("codeName"),
            message: text("errmsg"),
            reply,
        }
    }
}

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
            // An error of this write cannot be reported.
            let _ = writeln!(out, "SKIPPED a live test, {unavailable}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The timeout of every wait. It is generous, because a machine with few cores may run many tests
/// at once, and a long timeout only delays the report of a failure.
const TIMEOUT: Duration = Duration::from_secs(120);

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

#[cfg(test)]
mod tests {
    use super::{Error, Unavailable, decide};

    #[test]
    fn a_missing_server_skips_the_test_with_the_reason_unless_one_is_required() {
        let missing = || Err(Unavailable::new("no pip").into());
        let failed = || Err(Error::State("no".to_owned()));
        let skipped = "SKIPPED a live test, a server is not available: no pip\n";
        let missed = "a server is not available: no pip";
        for (started, required, expected, report) in [
            (missing(), false, Ok(None), skipped),
            (missing(), true, Err(missed), ""),
            (failed(), false, Err("no"), ""),
            (Ok(7), false, Ok(Some(7)), ""),
        ] {
            let mut said = Vec::new();
            let decided = decide(started, required, &mut said).map_err(|error| error.to_string());
            assert_eq!(decided, expected.map_err(str::to_owned));
            assert_eq!(String::from_utf8(said).unwrap(), report);
        }
    }
}
