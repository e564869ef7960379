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

/// Opens a topology, selects a server for the operation named `operation`, and closes the topology.
/// Returns the log lines.
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
