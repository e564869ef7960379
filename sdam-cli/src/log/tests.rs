use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sdam::TopologyBuilder;
use sdam_core::{event::EventKind, options::Options};
use sdam_events::log::Severity;
use sdam_sim::{Blueprint, Served};

use super::*;
use crate::testing::block_on;

#[test]
fn nothing_is_logged_unless_a_variable_is_set() {
    let open = |lookup: &dyn Fn(&str) -> Option<String>| LogSink::open(LogConfig::from_env(lookup));
    assert!(open(&|_| None).unwrap().is_none());
    let command = |level: &'static str| {
        move |name: &str| (name == "MONGODB_LOG_COMMAND").then(|| level.to_owned())
    };
    assert!(open(&command("off")).unwrap().is_none());
    assert!(open(&command("debug")).unwrap().is_some());
}

#[test]
fn an_error_names_the_file_that_cannot_be_opened() {
    let lookup = |name: &str| match name {
        "MONGODB_LOG_ALL" => Some("debug".to_owned()),
        "MONGODB_LOG_PATH" => Some("/nowhere/at/all".to_owned()),
        _ => None,
    };
    let error = LogSink::open(LogConfig::from_env(lookup)).unwrap_err().to_string();
    assert!(error.starts_with("MONGODB_LOG_PATH is /nowhere/at/all: "), "{error}");
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a topology, selects a server of `set`, and closes the topology. Returns the log lines that
/// `config` enables.
fn lines(set: &Served, config: LogConfig) -> Vec<String> {
    lines_of(set, config, "insert")
}

/// Like [`lines`], but the selection is for the operation named `operation`.
fn lines_of(set: &Served, config: LogConfig, operation: &str) -> Vec<String> {
    let shared = Shared::default();
    let sink = LogSink::new(config, Box::new(shared.clone()));
    block_on(async {
        let mut options = Options::parse(set.uri()).unwrap();
        if set.primary().unwrap().is_none() {
            options.server_selection_timeout = Duration::from_millis(1);
        }
        let topology = TopologyBuilder::new(options)
            .sink(sink)
            .start(sdam::runtime::tokio().unwrap())
            .unwrap();
        let write = sdam_select::criteria::Criteria::write().with_operation_name(operation);
        let selected = topology.select(&write).await;
        assert_eq!(selected.is_ok(), set.primary().unwrap().is_some());
        topology.close().await;
    });
    let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn lines_have_time_severity_component_and_specified_message() {
    let logged =
        lines(&Blueprint::replica_set(1).serve().unwrap(), LogConfig::all(Severity::Debug));
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
    let set = Blueprint::replica_set(1).serve().unwrap();
    let logged = lines_of(&set, LogConfig::all(Severity::Debug), forged);
    let shown: Vec<_> = logged.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(!shown.is_empty(), "{logged:?}");
    for line in shown {
        assert!(line.contains("insert\u{fffd}2024") && !line.contains('\u{1b}'), "{line}");
    }
}

#[test]
fn a_line_has_the_time_of_its_event() {
    let shared = Shared::default();
    let sink = LogSink::new(LogConfig::all(Severity::Debug), Box::new(shared.clone()));
    let times = ["2024-01-01T10:00:00.000Z", "2024-01-01T18:30:00.000Z"];
    for (seq, time) in (0..).zip(times) {
        let at = sdam_core::time::Instant::EPOCH;
        let mut event =
            Event::new(seq, at, sdam_core::ids::ObjectId::default(), EventKind::TopologyOpening);
        event.time = Some(time.parse().unwrap());
        sink.emit(&event);
    }
    let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().map(|line| &line[..24]).collect::<Vec<_>>(), times);
}
