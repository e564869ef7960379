//! Sets and restores the modes of the terminal: raw mode, alternate screen and cursor; and the
//! signals that affect a full screen.

use std::{
    io,
    panic::{self, PanicHookInfo},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
};

use ratatui::crossterm::{
    cursor::{Hide, Show},
    execute,
    style::ResetColor,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};

use crate::output::lock;

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// Keeps the terminal in raw mode on the alternate screen.
///
/// Dropping this value restores the terminal, even after a panic of the thread that created the
/// value. Panics on other threads do not end the program; [`panics`](Self::panics) returns their
/// messages.
pub(super) struct Terminal {
    shared: Arc<Shared>,
    hook: Arc<Hook>,
}

#[derive(Default)]
struct Shared {
    is_entered: AtomicBool,
    /// The messages of panics on other threads.
    panics: Mutex<Vec<String>>,
}

impl Terminal {
    /// Enters the alternate screen in raw mode.
    pub(super) fn enter() -> io::Result<Self> {
        let hook: Arc<Hook> = panic::take_hook().into();
        let shared = Arc::<Shared>::default();
        let terminal = Self { shared: Arc::clone(&shared), hook: Arc::clone(&hook) };
        let owner = thread::current().id();
        panic::set_hook(Box::new(move |info| shared.panicked(owner, info, &*hook)));
        terminal.resume()?;
        Ok(terminal)
    }

    /// Enters the alternate screen again after [`suspend`](Self::suspend), or after another program
    /// has changed the terminal's modes.
    pub(super) fn resume(&self) -> io::Result<()> {
        self.shared.is_entered.store(true, Ordering::Relaxed);
        // Without this, crossterm would believe that raw mode is still enabled, even if a shell has
        // disabled it.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)
    }

    /// Restores the terminal until [`resume`](Self::resume) is called.
    pub(super) fn suspend(&self) {
        self.shared.restore();
    }

    /// Returns the panic messages of other threads.
    pub(super) fn panics(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.panics))
    }
}

impl Shared {
    /// Restores all modes that were changed. Further calls have no effect.
    fn restore(&self) {
        if self.is_entered.swap(false, Ordering::Relaxed) {
            // If the terminal is gone, there is nothing to restore.
            let _ = execute!(io::stdout(), ResetColor, Show, LeaveAlternateScreen);
            let _ = disable_raw_mode();
        }
    }

    fn panicked(&self, owner: ThreadId, info: &PanicHookInfo<'_>, hook: &Hook) {
        let thread = thread::current();
        if thread.id() == owner || !self.is_entered.load(Ordering::Relaxed) {
            self.restore();
            hook(info);
        } else {
            // Keep the message for later, because printing it now would corrupt the screen.
            let name = thread.name().unwrap_or("unnamed");
            lock(&self.panics).push(format!("thread {name}: {info}"));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.shared.restore();
        // A panicking thread cannot set the hook, but the process is about to end in that case
        // anyway.
        if !thread::panicking() {
            let hook = Arc::clone(&self.hook);
            panic::set_hook(Box::new(move |info| hook(info)));
        }
    }
}

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

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// The variable that tells this test to act as the program in a terminal.
    const ROLE: &str = "SDAM_TERMINAL_TEST";

    /// Acts as the program, and fails while the full screen is shown.
    fn fail(role: &str) {
        let terminal = Terminal::enter().unwrap();
        match role {
            "error" => assert_eq!(terminal.panics(), [""; 0]),
            "other" => {
                let other = thread::Builder::new().name("monitor".to_owned());
                let other = other.spawn(|| panic!("of another thread")).unwrap();
                assert!(other.join().is_err());
                let panics = terminal.panics();
                drop(terminal);
                println!("kept: {panics:?}");
            }
            _ => panic!("of the screen"),
        }
    }

    #[test]
    fn the_terminal_is_restored_after_a_panic_and_an_error() {
        if let Ok(role) = env::var(ROLE) {
            fail(&role);
            return;
        }
        let Some(terminal) = sdam_live::or_skip(sdam_live::Terminal::open(100, 40)).unwrap() else {
            return;
        };
        let program = env::current_exe().unwrap();
        let name = thread::current().name().unwrap().to_owned();
        let check = |role: &str, code: u8, shown: &str| {
            let program = program.display();
            let program = format!("{ROLE}={role} {program} --exact {name} --nocapture");
            let line = format!("clear; {program}; code=$?; stty; echo \"{role} $code\"");
            terminal.line(&line).unwrap();
            let text = terminal.wait_for(&format!("{role} {code}")).unwrap();
            assert!(text.contains(shown), "{text}");
            // `stty` lists only modes that differ from the defaults.
            let modes = text.split_once("baud").unwrap().1;
            assert!(!modes.contains("-icanon"), "{text}");
            assert!(!modes.contains("-echo"), "{text}");
            let state = terminal.state("#{alternate_on} #{cursor_flag}").unwrap();
            assert_eq!(state, "0 1", "the main screen, with a cursor");
        };
        check("panic", 101, "of the screen");
        check("error", 0, "1 passed");
        check("other", 0, "kept: [\"thread monitor: panicked at");
    }
}
