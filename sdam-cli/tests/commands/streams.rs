//! Tests that error messages about standard input say so, and that servers continue without
//! standard streams.

use std::{io::Read, net::TcpStream, process::Stdio};

use rustix::process::Signal;

use crate::program::{Room, Running};

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
    let lines = "{\"uri\":\"mongodb://a,b/?replicaSet=rs\"}\n{\n";
    let steps = "1s kill primary\n2s restrat 0\n";
    for (words, input, code, error) in [
        (&["replay"][..], lines, 1, "2: it is not JSON"),
        (&["replay", "-"], lines, 1, "2: it is not JSON"),
        (&["sim", "--scenario", "-"], steps, 3, "2: `restrat` is not"),
    ] {
        let mut running = start(&room, words, input);
        running.close_input();
        let ended = running.end();
        let expected = format!("error: standard input:{error}");
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.remarks.starts_with(&expected), "{ended:?}");
    }
}

#[test]
fn a_proxy_refuses_clients_beyond_the_limit_of_open_files() {
    let room = Room::new();
    let proxy = "ulimit -n 64; exec sdam proxy --demo --listen 127.0.0.1:0";
    let mut running = Running::start(room.command("sh").args(["-c", proxy]));
    let first = running.line();
    let address = first.strip_prefix("mongodb://").unwrap().split('/').next().unwrap();
    let clients: Vec<_> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut beyond = TcpStream::connect(address).unwrap();
    assert_eq!(beyond.read(&mut [0]).unwrap(), 0, "it is closed at once");
    drop(clients);
    running.signal(Signal::TERM);
    let ended = running.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let limit = "the limit of open files, 64, admits 16 connections: raise the limit";
    assert!(ended.remarks.contains(limit), "{ended:?}");
    let refusal = "16 connections are open, raise the limit of open files (ulimit -n";
    assert!(ended.remarks.contains(refusal), "{ended:?}");
}

#[test]
fn a_proxy_goes_on_when_its_notices_cannot_be_written() {
    let room = Room::new();
    let proxy = "exec sdam proxy --demo --listen 127.0.0.1:0";
    for command in [format!("{proxy} 2> /dev/full"), format!("{proxy} --json")] {
        let mut running = Running::start(room.command("sh").args(["-c", &command]));
        let first = running.line();
        let uri = first.split(['"', ' ']).find(|word| word.starts_with("mongodb://")).unwrap();
        // From now on, when the program writes to standard output, it gets a broken pipe.
        running.close_output();
        for _ in 0..2 {
            let seen = room.run(&["watch", "--once", uri]);
            assert_eq!(seen.code, 0, "{seen:?}");
        }
        running.signal(Signal::TERM);
        assert_eq!(running.end().code, 0, "{command}");
    }
}
