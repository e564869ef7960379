//! Exit codes, and functions that run the program.

use std::{
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

use crate::{
    console::Console,
    output::{Output, standard_output},
};

/// The exit code of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "main has to return it"]
pub struct Exit(u8);

impl Exit {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// `replay`: some lines were invalid.
    pub const BAD_LINES: Self = Self(1);
    /// `watch --once`: there are readable servers, but no writable one.
    pub const READABLE_ONLY: Self = Self(1);
    /// `compare`: clients disagreed for longer than the tolerance.
    pub const DISAGREED: Self = Self(1);
    /// `replay --trace`: the replay differs from the recording.
    pub const DIFFERENT: Self = Self(2);
    /// `watch --once`: there is no readable server.
    pub const NEITHER: Self = Self(2);
    /// `doctor`: the worst finding is a warning.
    pub const WARNINGS: Self = Self(1);
    /// `doctor`: the worst finding is a failure.
    pub const FAILURES: Self = Self(2);
    /// `explain`: no server was selected.
    pub const NO_SERVER: Self = Self(2);
    /// The command line or the connection string is invalid.
    pub const CONFIGURATION: Self = Self(3);
    /// An error unrelated to the deployment, such as writing the output.
    pub const FAILED: Self = Self(4);

    /// Creates the exit code of a program that was ended by a signal. `code` is 128 plus the
    /// signal's number.
    #[cfg(feature = "tui")]
    pub(crate) fn signalled(code: u8) -> Self {
        Self(code)
    }

    /// Converts the result of a program to its exit code.
    ///
    /// A reader that closes its end, such as `head`, is not an error; any other error is printed on
    /// standard error.
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

/// Runs `program` on a new runtime, and returns when it ends.
///
/// Monitors run on a separate thread. The remaining tasks are not awaited: a DNS look-up runs on a
/// thread that cannot be interrupted.
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

/// Runs a `program` that serves clients until it is stopped. Otherwise like [`run`], but the exit
/// code does not depend on whether the output is read.
#[cfg(any(feature = "export", feature = "proxy"))]
pub(crate) fn serve<F>(program: impl FnOnce(Console<Output, Output>) -> F) -> io::Result<Exit>
where
    F: Future<Output = io::Result<Exit>>,
{
    crate::descriptors::raise_limit();
    let console = Console::standard();
    let (output, remarks) = (console.output.clone(), console.remarks.clone());
    let result = run_to_end(program(console));
    let _ = remarks.finish();
    let _ = output.finish();
    result
}

/// Runs a `program` that ends by itself. Otherwise like [`run`], but may block until its output is
/// read.
pub(crate) fn run_to_end(program: impl Future<Output = io::Result<Exit>>) -> io::Result<Exit> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(program);
    runtime.shutdown_background();
    result
}

/// Resolves on Ctrl-C. If the signal cannot be handled, it ends the process as usual.
///
/// Must be awaited within a tokio runtime with I/O.
pub async fn interrupted() {
    if signal::ctrl_c().await.is_err() {
        pending::<()>().await;
    }
}

/// Resolves on Ctrl-C or SIGTERM. A signal that cannot be handled ends the process as usual.
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

/// Yields the meaning of each received signal, as given in `kinds`. A signal that cannot be handled
/// ends the process as usual.
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
            // tokio resolves host names on such blocking threads.
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
}
