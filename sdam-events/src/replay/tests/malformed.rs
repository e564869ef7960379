//! Lines that cannot be part of a recording.

use std::io;

use super::{check_refused, header, replay};

#[test]
fn a_malformed_header_is_refused_with_the_column_and_the_reason() {
    let header = header();
    let check = |text: &str, reason: &str| check_refused(text, 1, reason);
    check("", "empty");
    check("x", "column 1: expected value");
    check("{}", "column 2: missing field `recording`");
    let changed = |from: &str, to: &str| header.replace(from, to);
    check(&changed("\"sdam\",\"version", "\"x\",\"version"), "a recording of `x`");
    for version in [0, 2, 5] {
        let other = changed("\"version\":1", &format!("\"version\":{version}"));
        let reason = format!(
            "the recording has version {version} of the format, and this program reads version 1"
        );
        check(&other, &reason);
    }
    check(&changed("\"loadBalanced\":false,", ""), "missing field `loadBalanced`");
    check(&changed("\"maxServers\"", "\"most\""), "unknown field `most`, expected one of `seeds`");
    check(&changed("\"a:27017\"", "\"a:x\""), "column 71: `server address` is `a:x`");
}

#[test]
fn a_malformed_line_is_refused_with_its_number_the_column_and_the_reason() {
    let header = header();
    let check = |line: &str, reason: &str| {
        check_refused(&format!("{header}\n{line}\n"), 2, reason);
    };
    check(r#"{"seq":1,"at":-1}"#, "column 16: invalid value: integer `-1`");
    check(r#"{"seq":1,"at":1,"topology":"0"}"#, "column 31: `0` is not 24 hexadecimal digits");
    let check_line = |rest: &str, reason: &str| {
        let common = r#""seq":1,"at":1,"topology":"000000000000000000000000""#;
        check(&format!("{{{common},{rest}}}"), reason);
    };
    check_line(r#""at":2"#, "duplicate field `at`");
    let check_input = |input: &str, reason: &str| {
        check_line(&format!(r#""now":1,"input":{input}"#), reason);
    };
    check_line(r#""input":"Open""#, "missing field `now`");
    check_input(r#""Jump""#, "unknown variant `Jump`, expected one of `Open`");
    check_line(r#""event":"Jump""#, "unknown variant `Jump`, expected one of `TopologyOpening`");
    check_line(r#""more":1"#, "unknown field `more`");
    check_input(r#""Open","more":1"#, "unknown field `more`");
    check_input(r#""Open""#, "the first input is not `Open` with a `setup`");
    check_input(r#""Open","setup":{"seed":1}"#, "missing field `heartbeatFrequency`");
    check_input(r#"{"Deserted":{"server":1,"more":1}}"#, "unknown field `more`, expected `server`");
    check_input(r#"{"Deserted":{}}"#, "missing field `server`");
    check_input(r#"{"Deserted":{"server":"x"}}"#, "column 95: invalid type: string");
    check_input(
        r#"{"Failed":{"conn":{"server":1,"role":"Check","number":1},"at":1,"error":{"kind":"network","stage":"none"}}}"#,
        "unknown variant `none`, expected one of `check_out`, `dns`",
    );
    check_input(
        r#"{"Connected":{"conn":{"server":1,"role":"Pong","number":1}}}"#,
        "unknown variant `Pong`, expected one of `Check`, `Ping`, `Probe`",
    );
    check_input(r#"{"Handshake":{"server":1,"generation":0,"reply":"?"}}"#, "not base64");
    check_line(
        r#""event":"ServerSelectionFailed","selector":"s","reason":"timeout""#,
        "ServerSelectionFailed has `reason`, `failure` and `duration`",
    );
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_the_memory() {
    let recording = io::BufReader::new(io::repeat(b'x'));
    let error = replay(recording).unwrap_err().to_string();
    assert!(error.starts_with("line 1 of the recording: longer than 128 MiB"), "{error}");
}
