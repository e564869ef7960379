mod kinds;

use std::{collections::BTreeMap, fmt::Write as _};

use bson::doc;
use sdam_core::event::{EventKind, EventName};

pub(crate) use self::kinds::logged;
use super::{Component, DEFAULT_MAX_DOCUMENT_LENGTH, LogConfig, LogMessage, LogOutput, Severity};
use crate::{
    sink::Interest,
    test_support::{event, succeeded},
};

/// The component, severity and wording of each message, its fields, and its unstructured form.
const MESSAGES: &str = include_str!("tests/messages.txt");

#[test]
fn every_logged_event_has_the_message_of_the_specification() {
    // Messages and the names of their fields are compared with a stored list (F-63, J-6, K-1, K-2,
    // K-4, K-5, K-7, K-11).
    let mut shown = String::new();
    for kind in logged() {
        let event = event(kind);
        let message = LogMessage::of(&event, DEFAULT_MAX_DOCUMENT_LENGTH).unwrap();
        let mut fields = BTreeMap::new();
        for (name, value) in message.fields().iter() {
            assert_eq!(fields.insert(name, value.to_string()), None);
        }
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (component, severity) = (message.component().as_str(), message.severity());
        writeln!(shown, "{component} {severity:?}: {}", message.text()).unwrap();
        writeln!(shown, "    {}\n    {message}", fields.join(", ")).unwrap();
    }
    for (line, expected) in shown.lines().zip(MESSAGES.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(shown.lines().count(), MESSAGES.lines().count());
}

#[test]
fn changes_of_a_server_and_inputs_are_not_logged_and_all_else_is() {
    // The specification has no message for changes of a server (K-5).
    let logged: Vec<_> = logged().iter().map(EventKind::name).collect();
    let others = EventName::ALL.iter().filter(|name| !logged.contains(name));
    let expected = ["ServerDescriptionChanged", "RttMeasured", "Input"];
    assert!(others.map(|name| name.as_str()).eq(expected));
}

#[test]
fn replies_are_logged_up_to_the_limit() {
    // Documents in logs are truncated (K-2).
    let long = event(succeeded(1, &doc! { "text": "x".repeat(5000) }));
    for limit in [5, DEFAULT_MAX_DOCUMENT_LENGTH] {
        let message = LogMessage::of(&long, limit).unwrap();
        let reply = message.fields().get("reply").unwrap().to_string();
        assert_eq!(reply.len(), limit + "...".len());
        assert!(reply.ends_with("..."));
    }
}

fn config(variables: &[(&str, &str)]) -> LogConfig {
    LogConfig::from_env(|name| {
        let (_, value) = variables.iter().find(|(own, _)| *own == name)?;
        Some((*value).to_owned())
    })
}

#[test]
fn the_environment_configures_each_component_and_nothing_is_logged_by_default() {
    // Each component has its own level, set by a variable `MONGODB_LOG_*` (K-3).
    assert_eq!(config(&[]), LogConfig::default());
    assert!(config(&[]).interest().is_empty());

    let mixed = config(&[
        ("MONGODB_LOG_ALL", "info"),
        ("MONGODB_LOG_TOPOLOGY", "DEBUG"),
        ("MONGODB_LOG_CONNECTION", "off"),
        ("MONGODB_LOG_COMMAND", "loud"),
    ]);
    let severities = [
        (Component::Topology, Severity::Debug),
        (Component::ServerSelection, Severity::Info),
        (Component::Connection, Severity::Off),
        // An invalid level counts as unset.
        (Component::Command, Severity::Info),
    ];
    for (component, severity) in severities {
        assert_eq!(mixed.severity(component), severity, "{component:?}");
        assert!(!mixed.enables(component, Severity::Off), "{component:?}");
    }
    assert!(mixed.enables(Component::Topology, Severity::Debug));
    assert!(!mixed.enables(Component::Topology, Severity::Trace));
    assert!(mixed.enables(Component::ServerSelection, Severity::Warn));
    assert!(!mixed.enables(Component::Connection, Severity::Emergency));
    let expected = Interest::SDAM
        .without(EventName::ServerDescriptionChanged.into())
        .union(EventName::ServerSelectionWaiting.into());
    assert_eq!(mixed.interest(), expected);
}

#[test]
fn a_level_that_logs_the_start_of_heartbeats_logs_their_end() {
    // Logged heartbeats are paired like heartbeat events (K-9).
    let mut logged = 0;
    for severity in ["off", "error", "warn", "info", "debug", "trace"] {
        let interest = config(&[("MONGODB_LOG_TOPOLOGY", severity)]).interest();
        let heartbeats = interest.intersection(Interest::HEARTBEATS);
        assert!(heartbeats.is_empty() || heartbeats == Interest::HEARTBEATS, "{severity}");
        logged += usize::from(!heartbeats.is_empty());
    }
    assert_eq!(logged, 2, "debug and trace");
}

#[test]
fn every_level_of_the_specification_is_parsed() {
    // A variable `MONGODB_LOG_*` may have any of these values (K-3).
    let names = "off emergency alert critical error warn notice info debug trace".split(' ');
    let levels: Vec<Severity> = names.map(|name| name.parse().unwrap()).collect();
    assert!(levels.is_sorted());
    assert_eq!((levels[0], levels[9]), (Severity::Off, Severity::Trace));
    assert!("verbose".parse::<Severity>().is_err());
    assert!(config(&[("MONGODB_LOG_ALL", "nonsense")]).interest().is_empty());
}

#[test]
fn the_environment_sets_output_and_document_length() {
    // If a value is malformed, the default stays in effect (K-3).
    let check = |path: &str, output: LogOutput| {
        assert_eq!(config(&[("MONGODB_LOG_PATH", path)]).output, output);
    };
    check("stdout", LogOutput::Stdout);
    check("STDERR", LogOutput::Stderr);
    check("", LogOutput::Stderr);
    check("/var/log/m.log", LogOutput::File("/var/log/m.log".into()));
    for (length, expected) in [("12", 12), ("-1", 1000), ("many", 1000), ("0", 0)] {
        let config = config(&[("MONGODB_LOG_MAX_DOCUMENT_LENGTH", length)]);
        assert_eq!(config.max_document_length, expected, "{length}");
    }
}
