//! Stored recordings of versions 2 to 4.

use sdam_core::{deployment::Input, event::EventKind};

use super::{check_changes, check_refused, replay, replay_to};
use crate::sink::Interest;

/// A recording of a load balancer: a handshake, an error from its service, and the end of the
/// connection.
const VERSION_2: &str = include_str!("../../../tests/recordings/version_2.jsonl");
/// A recording of routers, one of which is replaced when the hosts in the SRV record change.
const VERSION_3: &str = include_str!("../../../tests/recordings/version_3.jsonl");
/// A recording of a replica set: discovery, errors of every kind, a failed check, a selection, and
/// a close while a heartbeat is under way.
const VERSION_4: &str = include_str!("../../../tests/recordings/version_4.jsonl");

/// Returns whether a line contains an event that a replay reproduces.
fn is_replayed(line: &str) -> bool {
    line.contains("\"event\":") && !line.contains("Heartbeat") && !line.contains("Selection")
}

#[test]
fn recordings_of_versions_2_to_4_are_replayed() {
    for (recording, version) in [(VERSION_2, 2), (VERSION_3, 3), (VERSION_4, 4)] {
        let header = recording.lines().next().unwrap();
        assert!(header.contains(&format!("\"version\":{version},")));
        let mut names = Interest::NONE;
        let mut lines = Vec::new();
        let outcome = replay_to(recording.as_bytes(), |line, event| {
            names = names | event.kind.name();
            lines.push(line);
        });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.divergence, outcome.cut_off), (None, None));
        let replayed = recording.lines().filter(|line| is_replayed(line)).count();
        assert_eq!(outcome.matched, replayed as u64);
        assert!(lines.is_sorted() && *lines.last().unwrap() == recording.lines().count() as u64);
        assert!(names.contains_all(Interest::INPUTS.intersection(names)));
        assert_eq!(outcome.origin.epoch.is_some(), version == 4);
    }
}

#[test]
fn inputs_of_earlier_versions_are_observed_as_those_of_today() {
    let mut inputs = Vec::new();
    let mut measured = 0;
    for recording in [VERSION_2, VERSION_3, VERSION_4] {
        replay_to(recording.as_bytes(), |_, event| match &event.kind {
            EventKind::Input(own) => inputs.push(own.input.clone()),
            EventKind::RttMeasured { .. } => measured += 1,
            _ => {}
        })
        .unwrap();
    }
    let count = |is_such: fn(&Input) -> bool| inputs.iter().filter(|input| is_such(input)).count();
    assert_eq!(count(|input| *input == Input::Open), 3);
    assert_eq!(count(|input| *input == Input::Close), 3);
    assert_eq!(count(|input| matches!(input, Input::Handshake { .. })), 2);
    assert_eq!(count(|input| matches!(input, Input::Error { .. })), 5);
    assert_eq!(count(|input| matches!(input, Input::Hosts(_))), 1);
    assert_eq!(count(|input| matches!(input, Input::Deserted { .. })), 1);
    assert_eq!(count(|input| matches!(input, Input::ServiceConnectionClosed { .. })), 1);
    assert_eq!(measured, 5, "by checks that were answered");
}

#[test]
fn a_changed_event_of_an_earlier_version_is_a_divergence() {
    for recording in [VERSION_2, VERSION_3, VERSION_4] {
        assert!(!check_changes(recording, is_replayed).is_empty());
    }
}

#[test]
fn the_end_of_a_recording_of_an_earlier_version_may_follow_later_inputs() {
    let close = VERSION_4.lines().find(|line| line.contains("\"input\":\"Close\"")).unwrap();
    let end = VERSION_4.lines().last().unwrap();
    let recording = VERSION_4.replacen(end, &format!("{close}\n{end}"), 1);
    assert_eq!(replay(recording.as_bytes()).unwrap().divergence, None);
}

#[test]
fn a_malformed_line_of_an_earlier_version_is_refused_with_the_reason() {
    let header = VERSION_4.lines().next().unwrap();
    let check = |rest: &str, reason: &str| {
        let common = r#""seq":1,"at":1,"topology":"000000000000000000000000""#;
        check_refused(&format!("{header}\n{{{common},{rest}}}\n"), 2, reason);
    };
    check(r#""input":"Due""#, "unknown variant `Due`, expected one of `Open`");
    check(r#""now":1,"input":"Open""#, "unknown field `now`");
    check(
        r#""input":{"MonitorDied":{"server":1,"more":1}}"#,
        "unknown field `more`, expected `server`",
    );
    check(r#""input":{"Checked":{"server":9}}"#, "no heartbeat");
    check(
        r#""input":{"Checked":{"server":9,"rtt":{"average":1,"minimum":1}}}"#,
        "missing field `p90`",
    );
    check(r#""input":{"Handshake":{"server":1,"generation":0,"reply":"?"}}"#, "not base64");
    let heartbeat = |rest: &str| {
        format!(
            r#""event":"ServerHeartbeatSucceeded","server":1,"address":"a:1","driverConnectionId":1,"awaited":false,"duration":1{rest}"#
        )
    };
    check(&heartbeat(""), "ServerHeartbeatSucceeded has `duration` and `reply`");
    check(&heartbeat(r#","reply":"?""#), "`reply` is not base64");
    check(&heartbeat(r#","reply":"","more":1"#), "unknown field `more`");
}
