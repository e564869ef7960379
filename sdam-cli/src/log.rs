//! Log messages as lines of text, configured by the MONGODB_LOG_* variables.
//!
//! This module is a minimal replacement for a logger. A program that has a logger can send the same
//! messages to it, for instance with `sdam::events::trace::TracingSink`.

use std::{
    env,
    fs::File,
    io::{self, Write},
    sync::Mutex,
};

use sdam_core::event::Event;
use sdam_events::{
    log::{LogConfig, LogMessage, LogOutput},
    sink::{EventSink, Interest},
};
use sdam_transport::system::wall;

use crate::{
    output::{Output, lock},
    terminal::sanitize,
};

/// Reads the log configuration from the environment of the process.
pub fn config() -> LogConfig {
    LogConfig::from_env(|name| env::var(name).ok())
}

/// A sink that writes a line for each event that has a log message.
pub struct LogSink {
    config: LogConfig,
    out: Mutex<Box<dyn Write + Send>>,
}

impl LogSink {
    /// Opens the output named by `config`. Returns `None` if logging is disabled.
    ///
    /// # Errors
    ///
    /// If the file in MONGODB_LOG_PATH cannot be opened; the error names it.
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

    /// Creates a sink that writes the messages enabled by `config` to `out`.
    pub fn new(config: LogConfig, out: Box<dyn Write + Send>) -> Self {
        Self { config, out: Mutex::new(out) }
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
        let line = format!(
            "{} {:5} {:15} {}\n",
            event.time.unwrap_or_else(wall),
            format!("{severity:?}").to_uppercase(),
            component.as_str(),
            sanitize(&message.to_string()),
        );
        // Write the line in a single call, so that lines are not mixed. Ignore errors, because
        // there is no place to report them.
        let _ = lock(&self.out).write_all(line.as_bytes());
    }

    fn interest(&self) -> Interest {
        self.config.interest()
    }
}

sdam_core::opaque!(LogSink, |this| config: this.config);

#[cfg(test)]
mod tests;
