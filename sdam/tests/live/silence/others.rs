//! Runs other drivers as processes that insert documents repeatedly and print lines about their
//! inserts.
//!
//! `cargo xtask foreign silence` passes the names and commands of these drivers.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::{PATIENCE, Recovery};

/// The environment variable that holds the drivers' names and commands: `name=program argument…;…`.
const COMMANDS: &str = "SDAM_OTHER_WRITERS";

/// The maximum time for which the test keeps the primary silent while it waits for the other
/// drivers to recover.
const SILENCE: Duration = Duration::from_secs(45);

pub(super) struct Other {
    pub(super) name: String,
    process: Child,
    lines: Arc<Lines>,
}

/// The lines that a process has printed, with the times at which they arrived.
#[derive(Default)]
struct Lines {
    all: Mutex<Vec<(Instant, Line)>>,
    changed: Condvar,
}

enum Line {
    /// A pool was cleared.
    Cleared,
    /// The first insert, or one that took half a second or longer.
    Insert { took: Duration, succeeded: bool },
}

impl Line {
    fn parse(line: &str) -> Self {
        match line.split_once(' ') {
            None if line == "cleared" => Self::Cleared,
            Some((outcome @ ("ok" | "failed"), took)) => {
                let took = Duration::from_secs_f64(took.parse().unwrap());
                Self::Insert { took, succeeded: outcome == "ok" }
            }
            _ => panic!("a line of another driver: {line:?}"),
        }
    }
}

impl Other {
    /// Starts the processes, which use this connection string to insert documents.
    pub(super) fn start_all(uri: &str) -> Vec<Self> {
        let commands = std::env::var(COMMANDS).unwrap_or_default();
        let commands = commands.split(';').filter(|command| !command.is_empty());
        commands.map(|command| Self::start(command, uri)).collect()
    }

    fn start(command: &str, uri: &str) -> Self {
        let (name, command) = command.split_once('=').unwrap();
        let mut words = command.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        let command = command.args(words).arg(uri).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = Arc::<Lines>::default();
        let (output, read) = (process.stdout.take().unwrap(), Arc::clone(&lines));
        thread::spawn(move || read.fill(output));
        Self { name: name.to_owned(), process, lines }
    }

    /// Waits until the driver has printed its first line.
    pub(super) fn begin(&self) {
        let lines = self.lines.all.lock().unwrap();
        let waited = self.lines.changed.wait_timeout_while(lines, PATIENCE, |all| all.is_empty());
        assert!(!waited.unwrap().1.timed_out(), "{} does not insert", self.name);
    }

    /// Waits until a slow insert after `since` has succeeded; returns false if that takes too long.
    pub(super) fn recovers(&self, since: Instant) -> bool {
        self.lines.wait_for_success(since, SILENCE.saturating_sub(since.elapsed()))
    }

    /// Waits until a slow insert has succeeded, and returns the outcome of the inserts after
    /// `since`.
    pub(super) fn recovery(&self, since: Instant) -> Recovery {
        assert!(self.lines.wait_for_success(since, PATIENCE), "{} is stuck", self.name);
        let lines = self.lines.all.lock().unwrap();
        let own = lines.iter().filter(|(at, _)| *at > since);
        let mut left_after = None;
        let (mut longest, mut failed) = (Duration::ZERO, 0);
        for (at, line) in own {
            match line {
                Line::Cleared => {
                    left_after.get_or_insert(at.duration_since(since));
                }
                Line::Insert { took, succeeded } => {
                    longest = longest.max(*took);
                    failed += usize::from(!succeeded);
                }
            }
        }
        Recovery { left_after, longest, failed }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Lines {
    fn fill(&self, output: ChildStdout) {
        for line in BufReader::new(output).lines() {
            let line = Line::parse(&line.unwrap());
            self.all.lock().unwrap().push((Instant::now(), line));
            self.changed.notify_all();
        }
    }

    fn wait_for_success(&self, since: Instant, limit: Duration) -> bool {
        let is_missing = |lines: &mut Vec<(Instant, Line)>| {
            !lines.iter().any(|(at, line)| {
                *at > since && matches!(line, Line::Insert { succeeded: true, .. })
            })
        };
        let lines = self.all.lock().unwrap();
        !self.changed.wait_timeout_while(lines, limit, is_missing).unwrap().1.timed_out()
    }
}
