//! The signals that affect a full screen.

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// End with this exit code.
    End(u8),
    /// Stop the process until it is continued.
    Suspend,
    /// Redraw everything, because the process was continued.
    Continue,
    /// The size of the terminal has changed.
    Resize,
}

#[cfg(unix)]
mod unix {
    use std::{io, process, time::Duration};

    use futures::{StreamExt, stream::FusedStream};
    use ratatui::crossterm::terminal::disable_raw_mode;
    use rustix::process::{Signal as Number, kill_current_process_group};
    use tokio::{signal::unix::SignalKind, time::sleep};

    use super::Signal;
    use crate::exit::received;

    /// Yields the signals that are received.
    pub(in super::super) fn signals() -> impl FusedStream<Item = Signal> + Unpin + Send {
        received([
            (SignalKind::terminate(), Signal::End(0)),
            (SignalKind::hangup(), Signal::End(128 + 1)),
            (SignalKind::quit(), Signal::End(128 + 3)),
            (SignalKind::from_raw(Number::TSTP.as_raw()), Signal::Suspend),
            (SignalKind::from_raw(Number::CONT.as_raw()), Signal::Continue),
            (SignalKind::window_change(), Signal::Resize),
        ])
    }

    /// Ends the process some time after a terminating signal, in case the terminal blocks the
    /// output.
    pub(in super::super) fn guard() {
        let mut signals = signals();
        tokio::spawn(async move {
            while let Some(signal) = signals.next().await {
                if let Signal::End(code) = signal {
                    sleep(PATIENCE).await;
                    let _ = disable_raw_mode();
                    process::exit(i32::from(code));
                }
            }
        });
    }

    /// The maximum time for an orderly exit.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// Stops this process's group, like Ctrl-Z, and returns when it is continued.
    ///
    /// Sends SIGSTOP, because an orphaned process group ignores SIGTSTP.
    pub(in super::super) fn stop() -> io::Result<()> {
        Ok(kill_current_process_group(Number::STOP)?)
    }
}

/// Substitutes that do nothing, for systems other than Unix.
#[cfg(not(unix))]
mod other {
    use std::io;

    use futures::stream::{FusedStream, pending};

    use super::Signal;

    pub(in super::super) fn signals() -> impl FusedStream<Item = Signal> + Unpin + Send {
        pending()
    }

    pub(in super::super) fn guard() {}

    pub(in super::super) fn stop() -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(unix))]
pub(super) use other::{guard, signals, stop};
#[cfg(unix)]
pub(super) use unix::{guard, signals, stop};
