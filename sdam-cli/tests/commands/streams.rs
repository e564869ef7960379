//! Tests standard input, including its errors and its end, and the files that the program writes.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use rustix::process::Signal;

use crate::program::{Room, Running, arguments, room};

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
fn a_report_is_written_beside_its_recording_and_replaces_only_reports() {
    let room = room();
    let read = |name: &str| fs::read(room.path().join(name)).unwrap();
    let report = |words: &[&str]| room.run(&[&["report", "few.jsonl"], words].concat());
    for _ in 0..2 {
        let ended = report(&[]);
        assert_eq!((ended.code, &*ended.output), (0, ""), "{ended:?}");
        assert!(ended.remarks.starts_with("few.html: A primary was known"), "{ended:?}");
    }
    let page = read("few.html");
    assert!(page.starts_with(b"<!DOCTYPE html>"));
    assert_eq!(report(&["-o", "-"]).output.as_bytes(), page);
    let recording = read("few.jsonl");
    assert_eq!(report(&["-o", "few.jsonl"]).code, 3);
    assert_eq!(read("few.jsonl"), recording);
    assert_eq!(report(&["-o", "few.jsonl", "--force"]).code, 0);
    assert_eq!(read("few.jsonl"), page);
}

#[test]
fn only_its_owner_can_read_what_is_written_and_no_recording_is_overwritten() {
    let room = room();
    let watch = |name| {
        let words = ["watch", "--once", "--record", name, "URI"];
        room.run(&arguments(words[0], &words[1..].join(" "), "")).code
    };
    assert_eq!(watch("new.jsonl"), 0);
    assert_eq!(room.run(&["report", "new.jsonl"]).code, 0);
    for name in ["new.jsonl", "new.html"] {
        let mode = fs::metadata(room.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let recording = fs::read(room.path().join("new.jsonl")).unwrap();
    assert_eq!(watch("new.jsonl"), 3);
    assert_eq!(fs::read(room.path().join("new.jsonl")).unwrap(), recording);
    assert_eq!(watch("empty"), 0, "an empty file may be used");
}
