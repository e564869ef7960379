//! Exit codes, the error of a program that cannot start, and functions that run the program.

use std::{
    fmt::{self, Display},
    future::{Future, pending},
    io::{self, Write},
    process::ExitCode,
};

#[cfg(unix)]
use futures::{
    StreamExt,
    stream::{FusedStream, select_all, unfold},
};
use tokio::{runtime::Builder, signal};

use crate::output::{Console, Output, standard_output};

/// The exit code of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "main has to return it"]
pub struct Exit(u8);

impl Exit {
    /// The program succeeded.
    pub const SUCCESS: Self = Self(0);
    /// `watch --once`: there are readable servers, but no writable one.
    pub const READABLE_ONLY: Self = Self(1);
    /// `watch --once`: there is no readable server.
    pub const NEITHER: Self = Self(2);
    /// `doctor`: the worst finding is a warning.
    pub const WARNINGS: Self = Self(1);
    /// `doctor`: the worst finding is a failure.
    pub const FAILURES: Self = Self(2);
    /// `explain`: no server was selected, or the type of the selected one refuses the operation.
    pub const NO_SERVER: Self = Self(2);
    /// The command line or the connection string is invalid.
    pub const CONFIGURATION: Self = Self(3);
    /// An error that is unrelated to the deployment, such as a failure to write the output.
    pub const FAILED: Self = Self(4);

    /// Creates the exit code of a program that was ended by a signal: `code` is 0 for SIGTERM, and
    /// 128 plus the number of the signal for all others.
    #[cfg(feature = "tui")]
    pub(crate) fn signalled(code: u8) -> Self {
        Self(code)
    }

    /// Converts the result of a program to an exit code.
    ///
    /// If the reader of the output, such as `head`, has closed the pipe, that does not count as an
    /// error. Any other error is printed on standard error.
    pub fn of(result: io::Result<Self>) -> Self {
        match result {
            Ok(exit) => exit,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Self::SUCCESS,
            Err(error) => {
                // A failure to write to standard error cannot be reported.
                let mut remarks = Output::stderr();
                let _ = writeln!(remarks, "error: {error}");
                Self::FAILED
            }
        }
    }
}

/// The exit code and the error message.
#[derive(Debug)]
pub(crate) struct Failure(Exit, String);

/// Prints the message.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl Failure {
    /// Creates the error for invalid arguments.
    pub(crate) fn config(error: impl Display) -> Self {
        Self(Exit::CONFIGURATION, error.to_string())
    }

    /// Creates the error for any other problem.
    pub(crate) fn other(error: impl Display) -> Self {
        Self(Exit::FAILED, error.to_string())
    }

    /// Creates the error for a program that cannot listen on `address`, which was given by
    /// `option`.
    #[cfg(feature = "export")]
    pub(crate) fn listen(option: &str, address: std::net::SocketAddr, error: &io::Error) -> Self {
        use io::ErrorKind;

        let reason = match error.kind() {
            ErrorKind::AddrInUse => "another program listens there; choose another port, or 0",
            ErrorKind::AddrNotAvailable => {
                "this host has no such address; 0.0.0.0 means all it has"
            }
            ErrorKind::PermissionDenied => "this user may not; choose a port from 1024 on",
            _ => return Self::other(format!("{option} {address}: cannot listen: {error}")),
        };
        Self::other(format!("{option} {address}: {reason}"))
    }

    /// Prints the message and returns the exit code.
    #[expect(clippy::unnecessary_wraps, reason = "the result of programs that also write")]
    pub(crate) fn report(self, remarks: &mut impl Write) -> io::Result<Exit> {
        // Ignore a failed write, because it must not change the exit code.
        let _ = writeln!(remarks, "error: {}", self.1);
        Ok(self.0)
    }
}

/// Runs `program` on a new runtime, and returns when `program` ends.
///
/// Monitors run on a separate thread. Tasks that are still running when `program` ends are not
/// awaited, because some, such as DNS look-ups, run on threads that cannot be interrupted.
///
/// # Errors
///
/// If the runtime cannot be created, if `program` fails, or if its output is not read to the end.
pub fn run<F>(program: impl FnOnce(Console<Output, Output>) -> F) -> io::Result<Exit>
where
    F: Future<Output = io::Result<Exit>>,
{
    let console = Console::standard();
    let (output, remarks) = (console.output.clone(), console.remarks.clone());
    let result = run_to_end(program(console));
    remarks.finish()?;
    let exit = result?;
    output.finish()?;
    Ok(exit)
}

/// Like [`run`], but for a `program` that serves clients until it is stopped. The exit code does
/// not depend on whether anyone reads the output.
#[cfg(feature = "export")]
pub(crate) fn serve<F>(program: impl FnOnce(Console<Output, Output>) -> F) -> io::Result<Exit>
where
    F: Future<Output = io::Result<Exit>>,
{
    raise_limit();
    let console = Console::standard();
    let (output, remarks) = (console.output.clone(), console.remarks.clone());
    let result = run_to_end(program(console));
    let _ = remarks.finish();
    let exit = result?;
    match output.finish() {
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error),
        _ => Ok(exit),
    }
}

/// The number of open files that macOS always permits, regardless of the maximum that it reports
/// (`OPEN_MAX`).
#[cfg(all(unix, feature = "export"))]
const SAFE: u64 = 10_240;

/// Raises the limit on open files as far as the system permits.
#[cfg(all(unix, feature = "export"))]
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    raise(limit.current, limit.maximum, |current| {
        setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum }).is_ok()
    });
}

/// Raises `current` to `maximum`. If the system refuses this, raises `current` to [`SAFE`], unless
/// it is already higher. `None` means no limit. `set` returns whether the system has accepted the
/// limit.
#[cfg(all(unix, feature = "export"))]
fn raise(current: Option<u64>, maximum: Option<u64>, set: impl Fn(Option<u64>) -> bool) {
    let is_safe_more = current.is_some_and(|current| current < SAFE);
    if !set(maximum) && is_safe_more {
        // If this fails, too, the limit stays unchanged.
        set(Some(SAFE));
    }
}

#[cfg(all(not(unix), feature = "export"))]
fn raise_limit() {}

/// Like [`run`], but for a `program` that ends by itself and may block until its output is read.
pub(crate) fn run_to_end(program: impl Future<Output = io::Result<Exit>>) -> io::Result<Exit> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(program);
    runtime.shutdown_background();
    result
}

/// Resolves on Ctrl-C. If no handler for the signal can be installed, Ctrl-C ends the process as
/// usual.
///
/// Must be awaited within a tokio runtime with I/O.
pub async fn interrupted() {
    if signal::ctrl_c().await.is_err() {
        pending::<()>().await;
    }
}

/// Resolves on Ctrl-C or SIGTERM. A signal for which no handler can be installed ends the process
/// as usual.
///
/// Must be awaited within a tokio runtime with I/O.
pub async fn stopped() {
    #[cfg(unix)]
    {
        use signal::unix::SignalKind;

        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        if received(kinds.map(|kind| (kind, ()))).next().await.is_none() {
            pending::<()>().await;
        }
    }
    #[cfg(not(unix))]
    interrupted().await;
}

/// Yields an item for each received signal: the value that `kinds` assigns to it. A signal for
/// which no handler can be installed ends the process as usual.
///
/// Must be called within a tokio runtime with I/O.
#[cfg(unix)]
pub(crate) fn received<T: Copy + Send>(
    kinds: impl IntoIterator<Item = (signal::unix::SignalKind, T)>,
) -> impl FusedStream<Item = T> + Unpin + Send {
    let known = kinds.into_iter();
    let known =
        known.filter_map(|(kind, meaning)| Some((signal::unix::signal(kind).ok()?, meaning)));
    select_all(known.map(|(signal, meaning)| {
        Box::pin(unfold(signal, move |mut signal| async move {
            signal.recv().await.map(|()| (meaning, signal))
        }))
    }))
}

/// Yields an item for each SIGHUP. From this call on, SIGHUP does not end the process.
///
/// Must be called within a tokio runtime with I/O.
#[cfg(feature = "export")]
pub(crate) fn hangups() -> impl futures::stream::FusedStream<Item = ()> + Unpin {
    #[cfg(unix)]
    return received([(signal::unix::SignalKind::hangup(), ())]);
    #[cfg(not(unix))]
    futures::stream::pending()
}

/// Waits for `future`, or forever if there is none.
pub(crate) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Prints `text`, such as the help, on standard output.
pub fn print(text: &[u8]) -> Exit {
    Exit::of(standard_output().write_all(text).map(|()| Exit::SUCCESS))
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn programs_end_while_a_look_up_hangs() {
        let (over, never) = mpsc::channel::<()>();
        let (begun, look_up) = mpsc::channel();
        let exit = run(|_| async move {
            // This blocking task represents a look-up: tokio resolves host names on such threads.
            tokio::task::spawn_blocking(move || {
                begun.send(()).unwrap();
                never.recv()
            });
            look_up.recv().map_err(io::Error::other)?;
            Ok(Exit::SUCCESS)
        });
        assert_eq!(exit.unwrap(), Exit::SUCCESS);
        drop(over);
    }

    #[cfg(all(unix, feature = "export"))]
    #[test]
    fn a_limit_is_raised_as_far_as_the_system_permits() {
        let check = |current, maximum, permitted: Option<u64>, expected| {
            let limit = std::cell::Cell::new(current);
            raise(current, maximum, |wanted| {
                let is_permitted = match (wanted, permitted) {
                    (_, None) => true,
                    (wanted, Some(most)) => wanted.is_some_and(|wanted| wanted <= most),
                };
                if is_permitted {
                    limit.set(wanted);
                }
                is_permitted
            });
            assert_eq!(limit.get(), expected);
        };
        check(Some(1024), Some(4096), None, Some(4096));
        check(Some(1024), None, None, None);
        // macOS reports no maximum, and permits 10,240.
        check(Some(256), None, Some(SAFE), Some(SAFE));
        check(Some(20_000), None, Some(15_000), Some(20_000));
        check(Some(256), None, Some(1_000), Some(256));
    }
}
