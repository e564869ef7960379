//! Tests of complete check-ups: a gallery of deployments, and the options of the command line.

mod gallery;
mod mended;
mod remedies;
pub(in crate::doctor) mod servers;

use std::{sync::Arc, time::Duration};

use sdam::{Error, Resolver, Runtime, runtime::SrvRecords};
use sdam_core::{address::ServerAddress, error::Stage, uri::ConnectionString};
use sdam_live::Port;
use sdam_sim::{Blueprint, Served, serve::Listen};
use serde_json::Value;
use tokio::runtime::Builder as Tokio;

use self::servers::{Server, listener, standalone};
use super::*;
use crate::terminal::{Palette, WIDTH, columns};

/// A resolver that returns the same SRV records for every name.
#[derive(Debug)]
struct Records(Vec<ServerAddress>);

#[sdam::async_trait]
impl Resolver for Records {
    async fn lookup_srv(&self, _: &str, _: Option<Duration>) -> Result<SrvRecords, Error> {
        Ok(SrvRecords::new(self.0.clone(), Duration::from_secs(60)))
    }

    async fn lookup_txt(&self, _: &str, _: Option<Duration>) -> Result<Vec<Box<str>>, Error> {
        Ok(Vec::new())
    }
}

/// Runs `task` with a runtime whose resolver answers every look-up with the SRV records `records`.
fn with_runtime<T>(records: Vec<ServerAddress>, task: impl AsyncFnOnce(Runtime) -> T) -> T {
    let tokio = Tokio::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let result = tokio.block_on(async {
        let mut runtime = sdam::runtime::tokio().unwrap();
        runtime.backend.resolver = Some(Arc::new(Records(records)));
        task(runtime).await
    });
    tokio.shutdown_background();
    result
}

fn run_with(arguments: &Arguments, uri: &str, records: Vec<ServerAddress>) -> (Exit, String) {
    let mut output = Vec::new();
    let exit = with_runtime(records, async |runtime| {
        examine(arguments, uri, &runtime, &mut output, Palette::Plain).await
    });
    (exit.unwrap(), String::from_utf8(output).unwrap())
}

fn observe(arguments: &Arguments, uri: &str) -> Observation {
    with_runtime(Vec::new(), async |runtime| observe::observe(arguments, uri, &runtime).await)
}

/// Returns arguments for JSON output, with time limits that are long enough for a machine under
/// load, and without findings about round-trip times, which differ on one.
fn arguments() -> Arguments {
    Arguments {
        json: true,
        timeout: Some(Duration::from_secs(3)),
        suppress: vec![Suppression::parse("rtt").unwrap()],
        ..Arguments::default()
    }
}

fn run_json(arguments: &Arguments, uri: &str) -> (Exit, Value) {
    let (exit, output) = run_with(arguments, uri, Vec::new());
    (exit, serde_json::from_str(&output).unwrap())
}

/// Returns the first of the most severe problems, as `id status`, and the complete finding.
fn first(document: &Value) -> (String, Value) {
    let checks = document["checks"].as_array().unwrap();
    let problem = ["error", "fail", "warn"].into_iter().find_map(|status| {
        let is = |check: &&Value| check["status"] == status && check["suppressed"] == false;
        checks.iter().find(is)
    });
    let Some(problem) = problem else {
        return ("none".to_owned(), Value::Null);
    };
    let word = |key: &str| problem[key].as_str().unwrap();
    (format!("{} {}", word("id"), word("status")), problem.clone())
}

/// Checks that the first problem of the deployment at `uri` is `expected`, that the exit code is
/// `exit`, and that the finding has a remedy and contains `words`.
fn check(uri: &str, expected: &str, exit: Exit, words: &str) {
    check_with(&arguments(), uri, expected, exit, words);
}

fn check_with(arguments: &Arguments, uri: &str, expected: &str, exit: Exit, words: &str) {
    let seen = observe(arguments, uri);
    let document = check_formats(arguments, uri, &seen, exit);
    let (problem, finding) = first(&document);
    assert_eq!(problem, expected, "{document:#}");
    if expected == "none" {
        assert_eq!(document["verdict"], "ok");
        return;
    }
    assert!(finding.to_string().contains(words), "{words:?} in {finding:#}");
}

/// Checks that the text and JSON outputs have the same exit code and report the same first problem,
/// and that the remedy or the finding names a host or an option. Returns the JSON document.
fn check_formats(arguments: &Arguments, uri: &str, seen: &Observation, exit: Exit) -> Value {
    let conclude = |json| {
        let mut arguments = arguments.clone();
        arguments.json = json;
        let (text, code) = conclude(&arguments, uri, seen, Palette::Plain);
        assert_eq!(code, exit, "{text}");
        text
    };
    let (json, text) = (conclude(true), conclude(false));
    // The output is a single document, followed by a line break.
    assert_eq!(json.find('\n'), Some(json.len() - 1));
    let document: Value = serde_json::from_str(&json).unwrap();
    let (problem, finding) = first(&document);
    let name = match (problem.as_str(), finding["subject"].as_str()) {
        ("none", _) => "No problem was found".to_owned(),
        (_, Some(subject)) => format!("First problem: {} {subject}", id(&finding)),
        (_, None) => format!("First problem: {}", id(&finding)),
    };
    assert_eq!(text.matches(&name).count(), 1, "{name:?} in {text}");
    assert_eq!(text.matches("First problem:").count(), usize::from(problem != "none"));
    if problem != "none" {
        let remedies = strings(&finding["remedies"]);
        assert!(!remedies.is_empty(), "{finding:#}");
        let text = words(&text);
        assert!(remedies.iter().all(|own| text.contains(&words(own))), "{text}");
        let said = format!("{} {}", finding["subject"], remedies.join(" "));
        let mut hosts = seen.hosts.iter();
        let is_named = hosts.any(|host| said.contains(host.address.as_str()))
            || ConnectionString::known_options().any(|name| said.contains(name))
            || uri.contains(subject(&finding))
            || uri.split('/').nth(2).is_some_and(|host| said.contains(host));
        assert!(is_named, "{finding:#}");
    }
    document
}

fn id(finding: &Value) -> &str {
    finding["id"].as_str().unwrap()
}

fn subject(finding: &Value) -> &str {
    finding["subject"].as_str().unwrap_or("no subject")
}

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|own| own.as_str().unwrap()).collect()
}

/// Returns `text` with line breaks replaced by spaces.
fn words(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ")
}

/// Returns the arguments that map the members of `set` to their real addresses.
fn translated(set: &Served) -> Arguments {
    let mut arguments = arguments();
    arguments.target.translate = Some(set.places().iter().cloned().collect());
    arguments
}

/// A transport that panics when it has to connect to port 1, and refuses all other connections.
#[derive(Debug)]
struct Panicking;

#[sdam::async_trait]
impl sdam::Transport for Panicking {
    async fn connect(
        &self,
        target: &ServerAddress,
        _: Option<sdam_core::time::Instant>,
    ) -> Result<Box<dyn sdam::Connection>, Error> {
        assert_ne!(target.port(), Some(1), "the check panics");
        Err(Error::network(Stage::Hello, "refused by the test"))
    }

    fn with_layers(&self, _: sdam_transport::layers::Layers) -> Option<Arc<dyn sdam::Transport>> {
        Some(Arc::new(Self))
    }
}

#[test]
fn a_check_that_panics_is_an_error_and_the_others_are_made() {
    let tokio = Tokio::new_current_thread().enable_all().build().unwrap();
    let mut output = Vec::new();
    // With a proxy, the doctor does not dial the addresses itself but calls the transport
    // immediately.
    let uri = "mongodb://127.0.0.1:1,127.0.0.1:2/?proxyHost=127.0.0.1";
    let exit = tokio.block_on(async {
        let mut runtime = sdam::runtime::tokio().unwrap();
        runtime.backend.transport = Arc::new(Panicking);
        examine(&arguments(), uri, &runtime, &mut output, Palette::Plain).await
    });
    assert_eq!(exit.unwrap(), Exit::FAILED);
    let document: Value = serde_json::from_slice(&output).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let hellos = checks.iter().filter(|check| check["id"] == "hello");
    let hellos: Vec<_> = hellos.map(|check| check["status"].as_str().unwrap()).collect();
    assert_eq!(hellos, ["error", "fail"]);
}

/// Parses the command line `words`, and requests JSON output.
fn parse(words: &[&str]) -> Arguments {
    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }
    let words = ["doctor", "--timeout=3", "--json"].iter().chain(words);
    <Program as clap::Parser>::try_parse_from(words).unwrap().arguments
}

#[test]
fn suppressed_findings_do_not_count_but_stay_in_json() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let closed = Port::reserve().unwrap();
    let port = closed.address().port();
    let member = set.places()[0].0.clone();
    let uri = format!("mongodb://127.0.0.1:{port},{member}/?replicaSet=rs0");
    let host = format!("127.0.0.1:{port}");
    let seen = observe(&arguments(), &uri);
    let check = |suppressed: &str, expected: &str, exit| {
        let arguments = parse(&["--suppress", suppressed]);
        let document = check_formats(&arguments, &uri, &seen, exit);
        assert_eq!(first(&document).0, expected, "{suppressed}: {document:#}");
        let checks = document["checks"].as_array().unwrap();
        let tcp = checks.iter().find(|own| own["subject"] == host && own["id"] == "tcp");
        let tcp = tcp.unwrap();
        assert_eq!(tcp["status"], "fail");
        assert_eq!(tcp["suppressed"], expected == "none");
        let count = u32::from(expected == "none");
        assert_eq!(document["summary"]["suppressed"], count);
        assert_eq!(document["summary"]["fail"], 1 - count);
    };
    for suppressed in ["tcp", "tcp@127.0.0.1", &format!("tcp@{host}")] {
        check(suppressed, "none", Exit::SUCCESS);
    }
    for suppressed in ["hello", "tcp@127.0.0", "tcp@db"] {
        check(suppressed, "tcp fail", Exit::FAILURES);
    }
    let arguments = parse(&["--suppress=uri"]);
    let (exit, _) = run_json(&arguments, "mongodb:/a");
    assert_eq!(exit, Exit::CONFIGURATION);
}

#[test]
fn the_severity_of_a_failing_exit_code_can_be_chosen() {
    let server = Server::mongod(listener(), standalone);
    let warned = format!("mongodb://{}/?localTresholdMS=20", server.address());
    let closed = Port::reserve().unwrap();
    let port = closed.address().port();
    let failed = format!("mongodb://127.0.0.1:{port}/");
    for (fail_on, codes) in [
        ("warning", [Exit::WARNINGS, Exit::FAILURES]),
        ("failure", [Exit::SUCCESS, Exit::FAILURES]),
        ("never", [Exit::SUCCESS, Exit::SUCCESS]),
    ] {
        let arguments = parse(&["--fail-on", fail_on]);
        let uris = [&*warned, &*failed, "mongodb:/a"];
        let exits = uris.map(|uri| run_json(&arguments, uri).0);
        assert_eq!(exits, [codes[0], codes[1], Exit::CONFIGURATION], "{fail_on}");
    }
}

#[test]
fn text_shows_the_matrix_the_problem_and_the_remedy_in_80_columns() {
    let closed = Port::reserve().unwrap();
    let port = closed.address().port();
    let set = Blueprint::replica_set(1).serve().unwrap();
    let member = set.places()[0].0.clone();
    let uri = format!("mongodb://127.0.0.1:{port},{member}/?replicaSet=rs0");
    let mut arguments = arguments();
    arguments.json = false;
    let (exit, text) = run_with(&arguments, &uri, Vec::new());
    assert_eq!(exit, Exit::FAILURES, "{text}");
    assert!(text.lines().all(|line| columns(line) <= WIDTH), "{text}");
    for words in [
        "  addr  tcp   tls   hello rtt".to_owned(),
        format!("FAIL tcp 127.0.0.1:{port} the host refuses"),
        "     do        start the server".to_owned(),
        format!("First problem: tcp 127.0.0.1:{port}"),
    ] {
        assert!(text.contains(words.trim()), "{words:?} in {text}");
    }
}
