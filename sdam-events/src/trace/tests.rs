use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use sdam_core::event::EventName;
use tracing::{
    Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::TracingSink;
use crate::{
    log::{DEFAULT_MAX_DOCUMENT_LENGTH, LogConfig, LogMessage, Severity, tests::logged},
    queue::EventQueue,
    sink::{EventSink, Fanout, Interest, sink_fn},
    test_support::{TOPOLOGY, at, event, opening},
};

/// One `tracing` event as received by the subscriber.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    target: String,
    level: String,
    fields: BTreeMap<String, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.insert(field.name().into(), value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().into(), value.into());
    }
}

#[derive(Clone, Debug, Default)]
struct Capture(Arc<Mutex<Vec<Seen>>>);

impl Subscriber for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut seen = Seen {
            target: event.metadata().target().into(),
            level: event.metadata().level().to_string(),
            ..Seen::default()
        };
        event.record(&mut seen);
        self.0.lock().unwrap().push(seen);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Returns the events that a subscriber receives while `action` runs.
fn capture(action: impl FnOnce()) -> Vec<Seen> {
    let capture = Capture::default();
    tracing::subscriber::with_default(capture.clone(), action);
    let seen = capture.0.lock().unwrap();
    seen.clone()
}

#[test]
fn tracing_events_carry_exactly_the_fields_of_the_message() {
    // Log messages are derived from events (K-1, K-10).
    let sink = TracingSink::new(LogConfig::all(Severity::Debug));
    for kind in logged() {
        let event = event(kind);
        let message = LogMessage::of(&event, DEFAULT_MAX_DOCUMENT_LENGTH).unwrap();
        let mut expected = Seen::default();
        for (name, value) in message.fields().iter() {
            expected.fields.insert(name.into(), value.to_string());
        }
        expected.fields.insert("message".into(), message.text().into());
        expected.target = match message.component().as_str() {
            "serverSelection" => "mongodb::server_selection".into(),
            other => format!("mongodb::{other}"),
        };
        expected.level = match message.severity() {
            Severity::Info => "INFO".into(),
            Severity::Warn => "WARN".into(),
            _ => "DEBUG".into(),
        };
        assert_eq!(capture(|| sink.emit(&event)), [expected]);
    }
}

#[test]
fn levels_that_are_not_configured_are_not_logged() {
    // Each component has its own level (K-3).
    let mut config = LogConfig::default();
    let everything = logged();
    let count = |config: &LogConfig| {
        let sink = TracingSink::new(config.clone());
        let events = everything.iter().cloned().map(event);
        capture(|| events.for_each(|event| sink.emit(&event))).len()
    };
    assert_eq!(count(&config), 0);
    config.server_selection = Severity::Info;
    assert_eq!(count(&config), 2, "selections that wait");
    let sink = TracingSink::new(config);
    assert_eq!(sink.interest(), EventName::ServerSelectionWaiting.into());
}

#[test]
fn dropped_events_and_a_panicked_sink_are_logged() {
    let queue = EventQueue::new(TOPOLOGY, Interest::SDAM);
    for _ in 0..EventQueue::WARN_DEPTH {
        queue.push(at(1), opening(1));
    }
    let panics = || sink_fn(|_| panic!("broken"));
    let seen = capture(|| {
        queue.drain_now(&Fanout::from_iter([Arc::new(panics()) as Arc<dyn EventSink>]));
    });
    let messages: Vec<_> =
        seen.iter().map(|seen| (&*seen.target, &*seen.level, &*seen.fields["message"])).collect();
    assert_eq!(
        messages,
        [
            ("sdam::events", "WARN", "events are queued faster than the sink processes them"),
            ("sdam::events", "ERROR", "the event sink panicked at event 1 and is disabled: broken"),
        ]
    );

    queue.push(at(2), opening(2));
    let seen = capture(|| {
        queue.drain_now(&panics());
    });
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].level, "ERROR");
}
