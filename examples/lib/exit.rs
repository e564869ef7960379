//! How programs end.

use std::{
    future::{Future, pending},
    io::{self, Write},
    process::ExitCode,
};

use tokio::{runtime::Builder, signal};

use crate::{output::Output, watch::Console};

/// What a program tells whoever has started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is what main has to return"]
pub struct Exit(u8);

impl Exit {
    /// Everything went well.
    pub const SUCCESS: Self = Self(0);
    /// `replay`: some lines made no sense.
    pub const BAD_LINES: Self = Self(1);
    /// `watch --once`: there are servers to read from, and none to write to.
    pub const READABLE_ONLY: Self = Self(1);
    /// `replay --trace`: the recording does not happen again.
    pub const DIFFERENT: Self = Self(2);
    /// `watch --once`: there is no server to read from.
    pub const NEITHER: Self = Self(2);
    /// `select`: no server was selected.
    pub const NO_SERVER: Self = Self(2);
    /// The command line or the connection string makes no sense.
    pub const CONFIGURATION: Self = Self(3);
    /// Something failed that has nothing to do with the deployment, such as writing the output.
    pub const FAILED: Self = Self(4);

    /// The end of a program whose last word may not have been heard.
    ///
    /// A reader that has seen enough, such as `head`, is no error; anything else is, and is said on
    /// standard error.
    pub fn of(result: io::Result<Self>) -> Self {
        match result {
            Ok(exit) => exit,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Self::SUCCESS,
            Err(error) => {
                // Who does not read that either has to do without.
                let mut remarks = Output::stderr();
                let _ = writeln!(remarks, "error: {error}");
                Self::FAILED
            }
        }
    }
}

/// Runs `program` on a runtime of its own, and ends when it does.
///
/// Monitors work on a thread of their own. What they may have left behind is not waited for: the
/// look-up of a host name is a thread that nothing can interrupt.
///
/// # Errors
///
/// If there is no runtime, those of `program`, and if its output is not read to the end.
pub fn run<F>(program: impl FnOnce(Console<Output, Output>) -> F) -> io::Result<Exit>
where
    F: Future<Output = io::Result<Exit>>,
{
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let console = Console::standard();
    let (output, remarks) = (console.output.clone(), console.remarks.clone());
    let result = runtime.block_on(program(console));
    runtime.shutdown_background();
    remarks.finish()?;
    let exit = result?;
    output.finish()?;
    Ok(exit)
}

/// Ready at Ctrl-C; never where that cannot be heard, and then it ends the process as usual.
///
/// Has to be awaited in the context of a tokio runtime with I/O.
pub async fn interrupted() {
    if signal::ctrl_c().await.is_err() {
        pending::<()>().await;
    }
}

/// Prints a text, such as how to call a program, on standard output.
pub fn say(text: &str) -> Exit {
    Exit::of(
        io::stdout()
            .write_all(text.as_bytes())
            .map(|()| Exit::SUCCESS),
    )
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
    fn programs_end_although_a_look_up_hangs() {
        let (over, never) = mpsc::channel::<()>();
        let (begun, look_up) = mpsc::channel();
        let exit = run(|_| async move {
            // Where tokio looks up host names.
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
