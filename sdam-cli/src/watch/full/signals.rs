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
    use std::{future::pending, io, pin::Pin, process, time::Duration};

    use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
    use ratatui::crossterm::terminal::disable_raw_mode;
    use rustix::process::{Signal as Number, kill_current_process_group};
    use tokio::{
        signal::unix::{SignalKind, signal},
        time::sleep,
    };

    use super::Signal;

    /// Receives the signals.
    pub(in super::super) struct Signals(Vec<(tokio::signal::unix::Signal, Signal)>);

    impl Signals {
        pub(in super::super) fn new() -> io::Result<Self> {
            let stop = SignalKind::from_raw(Number::TSTP.as_raw());
            let go_on = SignalKind::from_raw(Number::CONT.as_raw());
            let kinds = [
                (SignalKind::terminate(), Signal::End(128 + 15)),
                (SignalKind::hangup(), Signal::End(128 + 1)),
                (SignalKind::quit(), Signal::End(128 + 3)),
                (stop, Signal::Suspend),
                (go_on, Signal::Continue),
                (SignalKind::window_change(), Signal::Resize),
            ];
            let signals = kinds.map(|(kind, meaning)| Ok((signal(kind)?, meaning)));
            Ok(Self(signals.into_iter().collect::<io::Result<_>>()?))
        }

        /// Waits for the next signal.
        pub(in super::super) async fn next(&mut self) -> Signal {
            let signals = self.0.iter_mut();
            let mut signals: FuturesUnordered<_> = signals
                .map(|(signal, meaning)| Box::pin(signal.recv().map(|_| *meaning)))
                .map(|future| future as Pin<Box<dyn Future<Output = Signal> + Send>>)
                .collect();
            match signals.next().await {
                Some(signal) => signal,
                None => pending().await,
            }
        }
    }

    /// Ends the process some time after a terminating signal, in case the terminal blocks the
    /// output.
    pub(in super::super) fn guard() -> io::Result<()> {
        let mut signals = Signals::new()?;
        tokio::spawn(async move {
            loop {
                if let Signal::End(code) = signals.next().await {
                    sleep(PATIENCE).await;
                    let _ = disable_raw_mode();
                    process::exit(i32::from(code));
                }
            }
        });
        Ok(())
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

#[cfg(not(unix))]
mod other {
    use std::{future::pending, io};

    use super::Signal;

    /// A substitute on systems without such signals.
    pub(in super::super) struct Signals;

    impl Signals {
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(in super::super) async fn next(&mut self) -> Signal {
            pending().await
        }
    }

    pub(in super::super) fn guard() -> io::Result<()> {
        Ok(())
    }

    pub(in super::super) fn stop() -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(unix))]
pub(super) use other::{Signals, guard, stop};
#[cfg(unix)]
pub(super) use unix::{Signals, guard, stop};
