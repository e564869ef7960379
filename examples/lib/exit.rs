//! How programs end.

use std::{
    future::pending,
    io::{self, Write},
    process::ExitCode,
};

use tokio::signal;

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
                eprintln!("error: {error}");
                Self::FAILED
            }
        }
    }
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
