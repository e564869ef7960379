//! Runs the example.

#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use sdam::SelectionError;
use sdam_core::read_preference::ReadMode;
use sdam_examples_scan::{Command, Purpose, Request, Result, run};
use sdam_sim::serve::Builder;

fn parse(line: &str) -> Result<Command> {
    Command::parse(line.split_whitespace().map(str::to_owned))
}

fn output(request: &Request) -> Result<String> {
    let mut output = Vec::new();
    run(request, &mut output)?;
    Ok(String::from_utf8(output).unwrap())
}

#[test]
fn a_connection_string_and_a_mode_are_accepted_in_any_order() {
    let check = |line, uri: Option<&str>, purpose| {
        let uri = uri.map(str::to_owned);
        let request = Request { uri, purpose };
        assert_eq!(parse(line).unwrap(), Command::Select(request), "{line}");
    };
    let nearest = Some(Purpose::Read(ReadMode::Nearest));
    check("", None, None);
    check("nearest", None, nearest);
    check("mongodb://a write", Some("mongodb://a"), Some(Purpose::Write));
    check("nearest mongodb://a", Some("mongodb://a"), nearest);
    assert_eq!(parse("write --help").unwrap(), Command::Help);
    assert!(parse("farthest").is_err());
}

#[test]
fn without_a_connection_string_a_step_down_is_demonstrated() {
    let request = Request { uri: None, purpose: Some(Purpose::Write) };
    let output = output(&request).unwrap();
    let selected: Vec<&str> = output
        .lines()
        .filter(|line| line.starts_with("selected "))
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(selected.len(), 2, "{output}");
    assert_ne!(selected[0], selected[1], "{output}");
    assert_eq!(output.matches("RSSecondary").count(), 4, "{output}");
}

#[test]
fn the_read_preference_of_the_connection_string_is_the_default() {
    let set = Builder::replica_set(2).start().unwrap();
    let separator = if set.uri().contains('?') { '&' } else { '?' };
    let uri = format!("{}{separator}readPreference=secondary", set.uri());
    let request = Request { uri: Some(uri), purpose: None };
    let output = output(&request).unwrap();
    assert!(output.contains("(RSSecondary) for query"), "{output}");
}

#[test]
fn an_unreachable_deployment_is_an_error_with_the_reason() {
    let server = Builder::standalone().start().unwrap();
    let uri = Some(server.uri().to_owned());
    drop(server);
    let request = Request { uri, purpose: None };
    let error = output(&request).unwrap_err();
    assert!(error.is::<SelectionError>(), "{error}");
    assert!(error.to_string().contains("after one scan"), "{error}");
}
