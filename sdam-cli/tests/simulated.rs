//! Tests `sdam serve`, `sdam sim` and `sdam replay` as processes: signals, pipes, standard input.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

/// The program as a process.
struct Sdam {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl Sdam {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sdam"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: child.stdout.take().map(BufReader::new),
            child,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.output.as_mut().unwrap();
        output.read_line(&mut line).unwrap();
        line
    }

    fn write(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops reading the output, and waits for the end.
    fn leave(mut self) -> (Option<i32>, String) {
        self.output = None;
        self.end()
    }

    /// Waits for the end; returns the exit code and the remarks.
    fn end(mut self) -> (Option<i32>, String) {
        let mut remarks = String::new();
        let mut stream = self.child.stderr.take().unwrap();
        stream.read_to_string(&mut remarks).unwrap();
        (self.child.wait().unwrap().code(), remarks)
    }
}

#[test]
fn serve_stops_at_ctrl_c_and_sigterm_also_after_the_end_of_its_input() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut serve = Sdam::start(&["serve"]);
        assert!(serve.line().starts_with("mongodb://"));
        serve.write("status\nsleep 0.001\n");
        for end in [
            " counter 1\n",
            " counter 1\n",
            " counter 1\n",
            "ok\n",
            "ok\n",
        ] {
            let line = serve.line();
            assert!(line.ends_with(end), "{line}");
        }
        serve.input = None;
        serve.signal(signal);
        let (code, remarks) = serve.end();
        assert_eq!(code, Some(0), "{signal:?}: {remarks}");
        assert!(remarks.contains("note: commands on standard input: stepdown, "));
    }
}

#[test]
fn serve_stops_when_the_reader_of_its_output_leaves() {
    let mut serve = Sdam::start(&["serve", "--standalone"]);
    assert!(serve.line().starts_with("mongodb://"));
    let (code, remarks) = serve.leave();
    assert_eq!(code, Some(0), "{remarks}");
}

#[test]
fn sim_reads_a_scenario_from_standard_input_and_ends_with_its_reader() {
    let mut sim = Sdam::start(&["sim", "--scenario", "-"]);
    sim.write("1s kill primary\n2s restrat 0\n");
    sim.input = None;
    let (code, remarks) = sim.end();
    assert_eq!(code, Some(3));
    assert!(
        remarks.starts_with("error: standard input:2: `restrat` is not an action"),
        "{remarks}"
    );
    // Much more than a pipe holds.
    let mut sim = Sdam::start(&["sim", "--scenario", "-", "--json"]);
    let cycle = "kill primary\nsleep 30\nrestart 0\nrestart 1\nrestart 2\nsleep 30\n";
    sim.write(&cycle.repeat(60));
    sim.input = None;
    assert!(sim.line().starts_with("{\"v\":1,"));
    let (code, remarks) = sim.leave();
    assert_eq!((code, &*remarks), (Some(0), ""));
}

#[test]
fn replay_reads_a_file_or_standard_input_and_names_it_in_errors() {
    let lines = "{\"uri\":\"mongodb://a,b/?replicaSet=rs\"}\n{\n";
    for words in [&["replay"][..], &["replay", "-"]] {
        let mut replay = Sdam::start(words);
        replay.write(lines);
        replay.input = None;
        assert!(replay.line().starts_with("{\"v\":1,"));
        let (code, remarks) = replay.end();
        assert_eq!(code, Some(1), "{remarks}");
        assert!(remarks.starts_with("error: standard input:2: it is not JSON"));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.jsonl");
    std::fs::write(&path, lines).unwrap();
    let path = path.to_str().unwrap();
    let (code, remarks) = Sdam::start(&["replay", path]).end();
    assert_eq!(code, Some(1));
    assert!(remarks.starts_with(&format!("error: {path}:2: it is not JSON")));
    let (code, remarks) = Sdam::start(&["replay", "--trace", path]).end();
    assert_eq!(code, Some(1));
    assert!(remarks.starts_with(&format!("error: {path}: line 1 of the recording: ")));
    let (code, remarks) = Sdam::start(&["replay", "/none/lines.jsonl"]).end();
    assert_eq!(code, Some(3));
    assert!(remarks.starts_with("error: /none/lines.jsonl: "));
}
