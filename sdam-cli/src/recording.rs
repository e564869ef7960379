//! Reads recordings, which contain all observations of a client with their times.
//!
//! `sdam watch --record FILE` writes a recording. A program that reads a recording replays it in
//! the pure state machine (`sdam_events::replay`). This results in the same events that a sink of
//! the live client received.

use std::{
    fmt::{self, Write as _},
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use sdam_core::{
    event::Event,
    options::Options,
    time::{Instant, UnixTime},
};
use sdam_events::replay::{ReplayError, replay_to};
use sha2::{Digest, Sha256};

use crate::{
    exit::Failure,
    files::{self, cannot_read, cannot_write},
    time::Walls,
};

#[cfg(test)]
pub(crate) mod tests;

/// The maximum length of a recording that is read, in bytes.
const LONGEST: u64 = 1 << 30;

/// A recording that was read to its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// The name of the file, for use in messages.
    pub name: String,
    /// The options of the recorded client that affect its topology.
    pub options: Options,
    /// Everything that was recorded, in order. Times never decrease.
    ///
    /// In addition to the events that a live client sends to its sinks, there are events for the
    /// client's inputs (`EventKind::Input`) and for the measured round-trip times
    /// (`EventKind::RttMeasured`). The event for a selection contains the description of the
    /// topology at that time.
    pub events: Vec<Event>,
    /// The line number of each event.
    pub lines: Vec<u64>,
    /// The reason why the end of the file was ignored; `None` if all of it was used.
    pub defect: Option<String>,
    /// The SHA-256 digest of the file, in hexadecimal digits.
    pub digest: String,
    walls: Walls,
}

impl Recording {
    /// Reads the recording in the file `path`, or in standard input if `path` is `-`. Reads at most
    /// the first GiB.
    ///
    /// If the recording program was killed, the last line may be incomplete. The recording is then
    /// read without that line, and [`defect`](Self::defect) gives the reason.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a recording. The message contains the file, the line
    /// and the remedy.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let name = files::name(path);
        let source = files::open(path);
        let source = source.map_err(|error| RecordingError(cannot_read(&name, &error)))?;
        Self::read(name, source, LONGEST)
    }

    /// Reads the recording `bytes` of the file `name`.
    ///
    /// # Errors
    ///
    /// The errors are the same as those of [`open`](Self::open).
    pub fn parse(name: impl Into<String>, bytes: &[u8]) -> Result<Self, RecordingError> {
        Self::read(name.into(), bytes, LONGEST)
    }

    /// Reads the first `limit` bytes of `source`. Each line is used as soon as it is read, so that
    /// an endless file that is not a recording is refused at once.
    fn read(name: String, source: impl Read, limit: u64) -> Result<Self, RecordingError> {
        let source = Hashed { inner: source.take(limit), digest: Sha256::new() };
        let mut source = BufReader::new(source);
        let (mut events, mut lines) = (Vec::new(), Vec::new());
        let outcome = replay_to(&mut source, |line, event| {
            events.push(event.clone());
            lines.push(line);
        });
        let unread = |error| RecordingError(cannot_read(&name, &error));
        let outcome = outcome.map_err(|error| match error {
            ReplayError::Io(error) => unread(error),
            ReplayError::Malformed { line: 1, .. } => RecordingError(format!(
                "{name}: {error}; `sdam watch --record FILE` makes a recording"
            )),
            error => RecordingError(format!("{name}: {error}")),
        })?;
        let defect = if let Some(divergence) = outcome.divergence {
            let line = divergence.line;
            let reason = "this version of sdam draws another conclusion from what was recorded";
            Some(format!("line {line} and what follows is left out: {reason}"))
        } else if source.get_ref().inner.limit() == 0 {
            Some(format!("it is longer than {limit} bytes, and the rest is left out"))
        } else {
            outcome.cut_off.map(|line| format!("the end of line {line}, the last one, is missing"))
        };
        // The digest is that of the whole file.
        io::copy(&mut source, &mut io::sink()).map_err(unread)?;
        let mut walls = Walls::default();
        if let Some(epoch) = outcome.origin.epoch.and_then(|it| it.duration_since(UNIX_EPOCH).ok())
        {
            let millis = u64::try_from(epoch.as_millis()).unwrap_or(u64::MAX);
            walls.note(Instant::EPOCH, UnixTime::from_millis(millis));
        }
        for event in &events {
            event.time.into_iter().for_each(|time| walls.note(event.at, time));
        }
        let digest = digits(&source.into_inner().digest.finalize());
        Ok(Self { name, options: outcome.options, events, lines, defect, digest, walls })
    }

    /// Returns the time of the first event.
    pub fn start(&self) -> Instant {
        self.events.first().map(|event| event.at).unwrap_or_default()
    }

    /// Returns the time of the last event.
    pub fn end(&self) -> Instant {
        self.events.last().map(|event| event.at).unwrap_or_default()
    }

    /// Returns the duration of the recording.
    pub fn span(&self) -> Duration {
        self.end().since(self.start())
    }

    /// Returns the wall-clock time of `at`, or `None` if the recording has no wall-clock times.
    pub fn wall(&self, at: Instant) -> Option<UnixTime> {
        self.walls.at(at)
    }
}

/// Creates the file for a new recording (--record), readable only by its owner. If the file exists,
/// it must be empty, a pipe or a device, because recordings are never overwritten.
pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    let mut options = File::options();
    options.read(true).write(true);
    let file = match private(options.clone().create_new(true)).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0) {
                return Err(Failure::config(format!(
                    "--record {}: the file exists; name a new one, or remove it",
                    path.display()
                )));
            }
            options.open(path)
        }
        file => file,
    };
    file.map_err(|error| cannot_record(path, &error))
}

/// Makes a file that `options` create readable only by its owner.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Explains why the recording for --record cannot be written.
pub(crate) fn cannot_record(path: &Path, error: &io::Error) -> Failure {
    Failure::other(cannot_write(format!("--record {}", path.display()), error))
}

/// The error for a file that cannot be read or is not a recording. It contains the file's name, the
/// line and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingError(String);

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordingError {}

/// A reader that computes the digest of the bytes that it reads.
struct Hashed<R> {
    inner: R,
    digest: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }
}

fn digits(digest: &[u8]) -> String {
    let mut digits = String::new();
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
