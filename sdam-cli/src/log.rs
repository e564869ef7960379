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
mod tests {
    use std::sync::mpsc::channel;

    use sdam::TopologyBuilder;
    use sdam_core::{event::EventKind, ids::ObjectId, options::Options, time::Instant};
    use sdam_events::log::Severity;
    use sdam_select::criteria::Criteria;
    use sdam_sim::Blueprint;

    use super::*;
    use crate::testing::{Lines, block_on};

    #[test]
    fn nothing_is_logged_unless_a_variable_is_set() {
        let open = |variables: &[(&str, &str)]| {
            LogSink::open(LogConfig::from_env(|name| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            }))
        };
        assert!(open(&[]).unwrap().is_none());
        assert!(open(&[("MONGODB_LOG_COMMAND", "off")]).unwrap().is_none());
        assert!(open(&[("MONGODB_LOG_COMMAND", "debug")]).unwrap().is_some());
        let path = ("MONGODB_LOG_PATH", "/nowhere/at/all");
        let error = open(&[("MONGODB_LOG_ALL", "debug"), path]).unwrap_err().to_string();
        assert!(error.starts_with("MONGODB_LOG_PATH is /nowhere/at/all: "), "{error}");
    }

    /// Returns the lines that are logged while `program` uses the sink.
    fn lines(program: impl FnOnce(LogSink)) -> Vec<String> {
        let (sender, lines) = channel();
        program(LogSink::new(LogConfig::all(Severity::Debug), Box::new(Lines::new(sender))));
        lines.iter().collect()
    }

    /// Opens a topology, selects a server for the operation named `operation`, and closes the
    /// topology. Returns the log lines.
    fn lines_of(operation: &str) -> Vec<String> {
        let set = Blueprint::replica_set(1).serve().unwrap();
        lines(|sink| {
            block_on(async {
                let options = Options::parse(set.uri()).unwrap();
                let builder = TopologyBuilder::new(options).sink(sink);
                let topology = builder.start(sdam::runtime::tokio().unwrap()).unwrap();
                let write = Criteria::write().with_operation_name(operation);
                topology.select(&write).await.unwrap();
                topology.close().await;
            });
        })
    }

    #[test]
    fn lines_have_time_severity_component_and_specified_message() {
        let logged = lines_of("insert");
        let first = &logged[0];
        let (time, rest) = first.split_at(24);
        assert!(time.starts_with("20") && time.ends_with('Z'), "{first}");
        let sentence = " DEBUG topology        Starting monitoring for topology with ID ";
        assert!(rest.starts_with(sentence), "{first}");
        let is_about = |wanted: &str| logged.iter().any(|line| line.contains(wanted));
        assert!(is_about(" DEBUG serverSelection Server selection started for operation insert"));
        assert!(is_about(" DEBUG connection      Connection pool ready for "));
        let last = logged.last().unwrap();
        assert!(last.contains("Stopped monitoring for topology with ID "), "{last}");
        assert!(logged.is_sorted_by_key(|line| line[..24].to_owned()), "{logged:#?}");
    }

    #[test]
    fn a_text_of_others_cannot_forge_a_line() {
        let forged = "insert\n2024-01-01T00:00:00.000Z ERROR\u{1b}[2J";
        let logged = lines_of(forged);
        let shown: Vec<_> = logged.iter().filter(|line| line.contains("ERROR")).collect();
        assert!(!shown.is_empty(), "{logged:?}");
        for line in shown {
            assert!(line.contains("insert\u{fffd}2024") && !line.contains('\u{1b}'), "{line}");
        }
    }

    #[test]
    fn a_line_has_the_time_of_its_event() {
        let times = ["2024-01-01T10:00:00.000Z", "2024-01-01T18:30:00.000Z"];
        let logged = lines(|sink| {
            for time in times {
                let kind = EventKind::TopologyOpening;
                let mut event = Event::new(0, Instant::EPOCH, ObjectId::default(), kind);
                event.time = Some(time.parse().unwrap());
                sink.emit(&event);
            }
        });
        assert_eq!(logged.iter().map(|line| &line[..24]).collect::<Vec<_>>(), times);
    }
}
