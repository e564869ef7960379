//! Tests that deployments are simulated only on request, and that simulated ones are always
//! labelled as such.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::Signal;
use sdam_sim::Blueprint;

use crate::{
    definition, each,
    program::{Room, Running, arguments},
    refusals::is_helpful,
};

/// Command lines that request a simulated deployment.
const DEMOS: [&str; 8] = [
    "",
    "watch --demo",
    "watch --demo --json",
    "watch --demo --once",
    "doctor --demo",
    "doctor --demo --json",
    "explain --demo",
    "export --demo --listen 127.0.0.1:0",
];

#[test]
fn without_a_connection_string_nothing_is_simulated_unasked() {
    each(|case| {
        let definition = definition(case.name);
        let has = |id| definition.get_arguments().any(|own| own.get_id() == id);
        assert_eq!(has("uri"), has("demo"), "{}", case.name);
        if !has("uri") {
            return;
        }
        let room = Room::new();
        let mut misspelled = room.sdam(&[case.name]);
        misspelled.env("SDAM_URL", "mongodb://127.0.0.1:1");
        for ended in [room.run(&[case.name]), Running::start(&mut misspelled).end()] {
            assert_eq!((ended.code, &*ended.output), (3, ""), "{ended:?}");
            for remedy in ["argument URI", "variable SDAM_URI", "--demo"] {
                is_helpful(&ended, remedy);
            }
        }
        let both = room.run(&arguments(case.name, "--demo URI", ""));
        assert_eq!((both.code, &*both.output), (3, ""), "{both:?}");
        is_helpful(&both, "--demo");
    });
}

#[test]
fn an_option_comes_before_the_variable_and_an_empty_variable_is_unset() {
    let room = Room::new();
    let run = |words: &str, variable: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        Running::start(room.sdam(&words).env("SDAM_URI", variable)).end()
    };
    for name in ["watch --once", "doctor", "export"] {
        let file = run(&format!("{name} --uri-file missing"), "mongodb://");
        assert_eq!(file.code, 3, "{file:?}");
        is_helpful(&file, "--uri-file missing");
        let empty = run(name, "");
        assert_eq!(empty.code, 3, "{empty:?}");
        is_helpful(&empty, "there is no connection string");
    }
    let targets = run("export --targets missing", "mongodb://");
    assert_eq!(targets.code, 3, "{targets:?}");
    is_helpful(&targets, "--targets missing");
    let bare = run("", "mongodb://:1");
    assert_eq!(bare.code, 3, "{bare:?}");
    is_helpful(&bare, "the host is empty");
}

#[test]
fn the_line_break_of_a_secret_is_left_out_with_a_warning() {
    let room = Room::new();
    let server = Blueprint::standalone().serve().unwrap();
    let uri = format!("{}\n", server.uri());
    for (words, code) in [(["watch", "--once"], 0), (["doctor", "--timeout=30"], 1)] {
        let ended = Running::start(room.sdam(&words).env("SDAM_URI", &uri)).end();
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.text().contains("it ends with white space"), "{ended:?}");
    }
}

#[test]
fn the_first_line_says_that_the_deployment_is_simulated() {
    let room = Room::new();
    for words in DEMOS {
        let words: Vec<_> = words.split_whitespace().collect();
        let mut running = Running::start(&mut room.interruptible(&words));
        let first = running.line();
        running.signal(Signal::INT);
        running.end();
        assert!(first.contains("simulated"), "{words:?}: {first}");
    }
}

fn get(address: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}

#[test]
fn metrics_and_the_topology_say_that_the_deployment_is_simulated() {
    let room = Room::new();
    let check = |words: &str, is_simulated: bool| {
        let words = format!("--listen 127.0.0.1:0 {words}");
        let words = arguments("export", &words, "");
        let mut running = Running::start(&mut room.interruptible(&words));
        let first = running.line();
        let address = first.split_whitespace().next().unwrap();
        let address = address.strip_prefix("http://").unwrap();
        let page = loop {
            let page = get(address, "/metrics");
            if page.contains("\nsdam_up") {
                break page;
            }
        };
        let mut samples = page.lines().filter(|line| line.starts_with("sdam_"));
        let label = |line: &str| line.contains("simulated=\"true\"");
        assert!(samples.all(|line| label(line) == is_simulated), "{page}");
        let topology = get(address, "/topology");
        let label = topology.contains("\"simulated\":true");
        assert_eq!(label, is_simulated, "{topology}");
        running.signal(Signal::INT);
        assert_eq!(running.end().code, 0);
    };
    check("--demo", true);
    check("URI", false);
}
