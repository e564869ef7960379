//! Log messages as lines of text, configured by the variables MONGODB_LOG_*.
//!
//! A program with a logger passes the same messages to it, for instance with
//! `sdam::events::trace::TracingSink`; this module is a minimal replacement.

use std::{
    env, fmt,
    fs::File,
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use sdam_core::{event::Event, time::Instant};
use sdam_events::{
    log::{LogConfig, LogMessage, LogOutput},
    sink::{EventSink, Interest},
};

use crate::output::Output;

/// Reads the log configuration from the environment of the process.
pub fn config() -> LogConfig {
    LogConfig::from_env(|name| env::var(name).ok())
}

/// A sink that writes a line for each event with a log message.
pub struct LogSink {
    config: LogConfig,
    state: Mutex<State>,
}

struct State {
    out: Box<dyn Write + Send>,
    /// One moment on both clocks, so that lines carry the time of the event and not of writing.
    anchor: Option<(Instant, SystemTime)>,
}

impl LogSink {
    /// Opens the output that `config` names. `None` if it enables nothing.
    ///
    /// # Errors
    ///
    /// If the file of MONGODB_LOG_PATH cannot be opened; the error names it.
    pub fn open(config: LogConfig) -> io::Result<Option<Self>> {
        if config.interest() == Interest::NONE {
            return Ok(None);
        }
        let out: Box<dyn Write + Send> = match &config.output {
            LogOutput::Stdout => Box::new(Output::stdout()),
            LogOutput::File(path) => {
                let file = File::options().create(true).append(true).open(&**path);
                Box::new(file.map_err(|error| {
                    io::Error::new(error.kind(), format!("MONGODB_LOG_PATH is {path}: {error}"))
                })?)
            }
            _ => Box::new(Output::stderr()),
        };
        Ok(Some(Self::new(config, out)))
    }

    /// Writes what `config` enables to `out`.
    pub fn new(config: LogConfig, out: Box<dyn Write + Send>) -> Self {
        let state = Mutex::new(State { out, anchor: None });
        Self { config, state }
    }
}

impl EventSink for LogSink {
    fn emit(&self, event: &Event) {
        let Some(message) = LogMessage::of(event, self.config.max_document_length) else {
            return;
        };
        let (component, severity) = (message.component(), message.severity());
        if !self.config.enables(component, severity) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, began) = *state.anchor.get_or_insert((event.at, SystemTime::now()));
        let line = format!(
            "{} {:5} {:15} {message}\n",
            timestamp(began + event.at.since(at)),
            format!("{severity:?}").to_uppercase(),
            component.as_str()
        );
        // In one call, so that lines are not mixed; an error cannot be reported anywhere.
        let _ = state.out.write_all(line.as_bytes());
    }

    fn interest(&self) -> Interest {
        self.config.interest()
    }
}

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogSink")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Formats date and time in UTC (RFC 3339).
pub(crate) fn timestamp(wall: SystemTime) -> String {
    let since_epoch = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since_epoch.as_secs(), since_epoch.subsec_millis());
    let (year, month, day) = date(seconds / (24 * 60 * 60));
    let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

/// Returns the year, month and day that begin `days` days after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last one, and the lengths of the
/// other months follow a linear formula.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// Counted from 0000-03-01.
    const BEFORE_1970: u64 = 719_468;
    let days = days + BEFORE_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests;
