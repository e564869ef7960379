//! Tests that error messages about standard input say so, and that servers continue without it.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use rustix::process::Signal;

use crate::program::{Room, Running, room};

/// Starts the program, writes `input` to its standard input, and leaves the input open.
fn start(room: &Room, words: &[&str], input: &str) -> Running {
    let mut running = Running::start(room.interruptible(words).stdin(Stdio::piped()));
    running.write(input.as_bytes());
    running
}

#[test]
fn a_server_continues_after_the_end_of_its_input() {
    let room = Room::new();
    for signal in [Signal::INT, Signal::TERM] {
        let mut serve = start(&room, &["serve"], "status\nsleep 0.001\n");
        serve.wait_for("mongodb://");
        for end in [" counter 1", " counter 1", " counter 1", "ok", "ok"] {
            serve.wait_for(end);
        }
        serve.close_input();
        serve.signal(signal);
        let ended = serve.end();
        assert_eq!(ended.code, 0, "{signal:?}: {ended:?}");
    }
}

#[test]
fn errors_in_standard_input_have_its_name_and_their_line() {
    let room = Room::new();
    let steps = "1s kill primary\n2s restrat 0\n";
    for (words, input, error) in [
        (&["report", "-"][..], "{\n", " line 1 of the recording: "),
        (&["serve", "--scenario", "-"], steps, "2: `restrat` is not"),
    ] {
        let mut running = start(&room, words, input);
        running.close_input();
        let ended = running.end();
        let expected = format!("error: standard input:{error}");
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(ended.remarks.starts_with(&expected), "{ended:?}");
    }
}

#[test]
fn an_endless_input_that_is_no_recording_is_refused_at_once() {
    let room = Room::new();
    let endless = "yes '{}' | sdam report -";
    let ended = Running::start(room.command("sh").args(["-c", endless])).end();
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.remarks.contains("makes a recording"), "{ended:?}");
}

#[test]
fn a_line_without_end_does_not_fill_the_memory_of_a_server() {
    let room = Room::new();
    let endless = "yes no | tr -d '\\n' | sdam serve";
    let mut serve = Running::start(room.command("sh").args(["-c", endless]));
    serve.wait_for("mongodb://");
    serve.wait_for("error: ");
    serve.signal(Signal::TERM);
    serve.end();
}

#[test]
fn only_its_owner_can_read_a_report() {
    let room = room();
    let ended = room.run(&["report", "few.jsonl"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let mode = fs::metadata(room.path().join("few.html")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
