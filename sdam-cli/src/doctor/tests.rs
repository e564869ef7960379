//! The gallery: deployments with one fault each, and healthy ones.

mod servers;

use std::{
    io::Read as _,
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use bson::DateTime;
use sdam::{Resolver, SrvRecords, TransportError};
use sdam_core::{address::ServerAddress, error::Stage};
use sdam_live::{Certificates, ServerCertificate};
use sdam_sim::{
    serve::{Builder, ReplicaSet},
    users::User,
};
use serde_json::Value;
use tokio::runtime::Builder as Tokio;

use self::servers::{Server, lagging, listener, primary, standalone};
use super::*;
use crate::{
    target::Target,
    terminal::{Palette, WIDTH, columns},
};

/// A name server with the SRV records of one name.
#[derive(Debug)]
struct Records(Vec<ServerAddress>);

#[sdam::async_trait]
impl Resolver for Records {
    async fn lookup_srv(&self, _: &str, _: Option<Duration>) -> Result<SrvRecords, TransportError> {
        Ok(SrvRecords::new(self.0.clone(), Duration::from_secs(60)))
    }

    async fn lookup_txt(
        &self,
        _: &str,
        _: Option<Duration>,
    ) -> Result<Vec<Box<str>>, TransportError> {
        Ok(Vec::new())
    }
}

fn run_with(arguments: &Arguments, uri: &str, records: Vec<ServerAddress>) -> (Exit, String) {
    let tokio = Tokio::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let mut output = Vec::new();
    let exit = tokio.block_on(async {
        let mut runtime = sdam::runtime::tokio().unwrap();
        runtime.io = runtime.io.with_resolver(Arc::new(Records(records)));
        examine(arguments, uri, &runtime, &mut output, Palette::Plain).await
    });
    tokio.shutdown_background();
    (exit.unwrap(), String::from_utf8(output).unwrap())
}

/// Returns the arguments for JSON, with time for a machine under load.
fn arguments() -> Arguments {
    Arguments {
        json: true,
        timeout: Some(Duration::from_secs(3)),
        ..Arguments::default()
    }
}

fn run_json(arguments: &Arguments, uri: &str) -> (Exit, Value) {
    let (exit, output) = run_with(arguments, uri, Vec::new());
    (exit, serde_json::from_str(&output).unwrap())
}

/// Returns the first problem, as `id status`, and the whole finding.
fn first(document: &Value) -> (String, Value) {
    let checks = document["checks"].as_array().unwrap();
    let problem = checks.iter().find(|check| {
        let status = check["status"].as_str().unwrap();
        ["warn", "fail", "error"].contains(&status)
    });
    let Some(problem) = problem else {
        return ("none".to_owned(), Value::Null);
    };
    let word = |key: &str| problem[key].as_str().unwrap();
    (
        format!("{} {}", word("id"), word("status")),
        problem.clone(),
    )
}

/// Checks the first problem of the deployment `uri`, the exit code, and that the finding has a
/// remedy and says `words`.
fn check(uri: &str, expected: &str, exit: Exit, words: &str) {
    check_with(&arguments(), uri, expected, exit, words);
}

fn check_with(arguments: &Arguments, uri: &str, expected: &str, exit: Exit, words: &str) {
    let (code, document) = run_json(arguments, uri);
    let (problem, finding) = first(&document);
    assert_eq!((&*problem, code), (expected, exit), "{document:#}");
    if expected == "none" {
        assert!(["ok"].contains(&document["verdict"].as_str().unwrap()));
        return;
    }
    assert!(
        !finding["remedies"].as_array().unwrap().is_empty(),
        "{finding:#}"
    );
    assert!(
        finding.to_string().contains(words),
        "{words:?} in {finding:#}"
    );
}

/// Returns the arguments that dial the members of `set` at their places.
fn translated(set: &ReplicaSet) -> Arguments {
    let mut arguments = arguments();
    arguments.target.translate = Some(set.places().iter().cloned().collect());
    arguments
}

#[test]
fn a_healthy_set_has_no_finding() {
    let set = ReplicaSet::start(3).unwrap();
    check(set.uri(), "none", Exit::SUCCESS, "");
}

#[test]
fn a_healthy_standalone_and_healthy_mongoses_have_no_finding() {
    let server = Builder::standalone().start().unwrap();
    check(server.uri(), "none", Exit::SUCCESS, "");
    let cluster = Builder::sharded(2).start().unwrap();
    check(cluster.uri(), "none", Exit::SUCCESS, "");
}

#[test]
fn a_healthy_set_behind_a_table_of_addresses_has_no_finding() {
    let named = |index, port| ServerAddress::new(&format!("mongo-{index}.invalid"), port);
    let set = ReplicaSet::build(Builder::replica_set(3).name(named)).unwrap();
    check_with(&translated(&set), set.uri(), "none", Exit::SUCCESS, "");
}

#[test]
fn a_misspelled_option_is_a_warning_with_the_right_name() {
    let set = ReplicaSet::start(1).unwrap();
    let uri = format!("{}&localTresholdMS=20", set.uri());
    check(
        &uri,
        "uri warn",
        Exit::WARNINGS,
        "did you mean localThresholdMS?",
    );
}

#[test]
fn a_misspelled_option_that_guards_connections_is_refused() {
    let uri = "mongodb://127.0.0.1/?tlsCAFille=/ca.pem";
    check(
        uri,
        "uri fail",
        Exit::CONFIGURATION,
        "did you mean tlsCAFile?",
    );
}

#[test]
fn a_bad_connection_string_is_refused_without_the_password() {
    let uri = "mongodb://ada:secret@a,b/?directConnection=true";
    let (exit, output) = run_with(&arguments(), uri, Vec::new());
    assert_eq!(exit, Exit::CONFIGURATION);
    assert!(!output.contains("secret"), "{output}");
    check(uri, "uri fail", Exit::CONFIGURATION, "directConnection");
    check("mongodb:/a", "uri fail", Exit::CONFIGURATION, "mongodb://");
}

#[test]
fn a_certificate_file_that_is_missing_is_refused() {
    let uri = "mongodb://127.0.0.1/?tls=true&tlsCAFile=/no/such/file.pem";
    check(uri, "uri fail", Exit::CONFIGURATION, "/no/such/file.pem");
}

#[test]
fn a_name_that_does_not_exist_is_a_failure_of_dns() {
    let uri = "mongodb://no-such-host.invalid/";
    check(uri, "dns.addr fail", Exit::FAILURES, "spelling");
}

#[test]
fn a_name_without_srv_records_is_a_failure_of_dns() {
    let uri = "mongodb+srv://cluster.example.com/?tls=false";
    check(uri, "dns.srv fail", Exit::FAILURES, "mongodb+srv");
}

#[test]
fn hosts_of_srv_records_are_checked() {
    let server = Server::mongod(listener(), standalone);
    let host = ServerAddress::new("db.example.com", 27017);
    let mut arguments = arguments();
    let place = ServerAddress::new("127.0.0.1", server.address().port());
    arguments.target.translate = Some([(host.clone(), place)].into_iter().collect());
    let uri = "mongodb+srv://cluster.example.com/?tls=false";
    let (exit, output) = run_with(&arguments, uri, vec![host]);
    let document: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        (&*first(&document).0, exit),
        ("none", Exit::SUCCESS),
        "{document:#}"
    );
}

#[test]
fn a_port_without_a_server_refuses() {
    let port = listener().local_addr().unwrap().port();
    let uri = format!("mongodb://127.0.0.1:{port}/");
    check(&uri, "tcp fail", Exit::FAILURES, "no server listens");
}

#[test]
fn a_silent_host_is_not_waited_for() {
    // The system accepts connections, and the program never does.
    let silent = listener();
    let uri = format!("mongodb://{}/", silent.local_addr().unwrap());
    let mut arguments = arguments();
    arguments.timeout = Some(Duration::from_millis(300));
    let begun = Instant::now();
    check_with(
        &arguments,
        &uri,
        "hello fail",
        Exit::FAILURES,
        "does not answer",
    );
    // Its own limit is 1.08 s; the rest is for a machine under load.
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_web_server_is_not_mongodb() {
    let server = Server::start(listener(), |mut stream| {
        stream.read_exact(&mut [0; 16])?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    });
    let uri = format!("mongodb://{}/", server.address());
    check(&uri, "hello fail", Exit::FAILURES, "HTTP");
}

#[test]
fn a_server_that_expects_tls_is_recognized() {
    let certificates = Certificates::create().unwrap();
    let server = Server::tls(&certificates, ServerCertificate::Valid);
    let uri = format!("mongodb://{}/", server.address());
    check(&uri, "hello fail", Exit::FAILURES, "tls=true");
}

#[test]
fn a_server_without_tls_is_recognized() {
    let certificates = Certificates::create().unwrap();
    let server = Server::mongod(listener(), standalone);
    let uri = format!("mongodb://{}/?{}", server.address(), certificates.options());
    check(
        &uri,
        "tls.handshake fail",
        Exit::FAILURES,
        "remove tls=true",
    );
}

#[test]
fn the_reason_for_which_a_certificate_is_rejected_is_found() {
    let certificates = Certificates::create().unwrap();
    let verify = |certificate, words| {
        let server = Server::tls(&certificates, certificate);
        let uri = format!("mongodb://{}/?{}", server.address(), certificates.options());
        check(&uri, "tls.verify fail", Exit::FAILURES, words);
    };
    verify(ServerCertificate::Expired, "has expired");
    verify(ServerCertificate::NotYetValid, "not valid yet");
    verify(ServerCertificate::WrongName, "other.example");
    verify(ServerCertificate::UnknownIssuer, "tlsCAFile");
}

#[test]
fn a_valid_certificate_is_shown_with_its_days() {
    let certificates = Certificates::create().unwrap();
    let server = Server::tls(&certificates, ServerCertificate::Valid);
    let uri = format!("mongodb://{}/?{}", server.address(), certificates.options());
    let (exit, document) = run_json(&arguments(), &uri);
    assert_eq!(
        (&*first(&document).0, exit),
        ("none", Exit::SUCCESS),
        "{document:#}"
    );
    let checks = document["checks"].as_array().unwrap();
    let verify = checks
        .iter()
        .find(|check| check["id"] == "tls.verify")
        .unwrap();
    assert!(
        verify["evidence"]["days"].as_i64().unwrap() > 365,
        "{verify}"
    );
    assert_eq!(verify["evidence"]["names"][0], "localhost");
}

#[test]
fn a_wrong_set_name_is_shown_with_the_right_one() {
    let set = ReplicaSet::start(1).unwrap();
    let uri = set.uri().replace("replicaSet=rs0", "replicaSet=other");
    check(&uri, "topo.kind fail", Exit::FAILURES, "set replicaSet=rs0");
}

#[test]
fn members_whose_names_lead_nowhere_are_named() {
    let named = |index, port| ServerAddress::new(&format!("mongo-{index}.invalid"), port);
    let set = ReplicaSet::build(Builder::replica_set(1).name(named)).unwrap();
    let (_, place) = set.places()[0].clone();
    let uri = format!("mongodb://{place}/?replicaSet=rs0");
    check(&uri, "topo.members fail", Exit::FAILURES, "--translate");
}

#[test]
fn a_set_without_primary_is_recognized() {
    let set = ReplicaSet::start(1).unwrap();
    set.step_down().unwrap();
    check(set.uri(), "topo.primary fail", Exit::FAILURES, "no primary");
}

#[test]
fn two_primaries_are_shown_with_their_elections() {
    let listeners = [listener(), listener()];
    let names = listeners
        .each_ref()
        .map(|own| own.local_addr().unwrap().to_string());
    let [a, b] = listeners;
    let reversed = [names[1].clone(), names[0].clone()];
    let own = names.clone();
    let _a = Server::mongod(a, move || primary(&own, 1, "7fffffff0000000000000001"));
    let _b = Server::mongod(b, move || primary(&reversed, 1, "7fffffff0000000000000002"));
    let uri = format!("mongodb://{}/?replicaSet=rs0", names.join(","));
    check(
        &uri,
        "topo.primary fail",
        Exit::FAILURES,
        "7fffffff0000000000000002",
    );
}

#[test]
fn a_secondary_that_lags_is_a_warning() {
    let listeners = [listener(), listener()];
    let names = listeners
        .each_ref()
        .map(|own| own.local_addr().unwrap().to_string());
    let [behind, ahead] = lagging(&names, 40_000);
    let [a, b] = listeners;
    let _a = Server::mongod(a, move || ahead.clone());
    let _b = Server::mongod(b, move || behind.clone());
    let uri = format!("mongodb://{}/?replicaSet=rs0", names.join(","));
    check(&uri, "lag warn", Exit::WARNINGS, "40 s behind the primary");
}

#[test]
fn a_wrong_password_is_told_apart_from_nothing() {
    let server = Builder::standalone()
        .user(User::new("ada", "right"))
        .start()
        .unwrap();
    let uri = |password| {
        server
            .uri()
            .replace("mongodb://", &format!("mongodb://ada:{password}@"))
    };
    check(
        &uri("wrong"),
        "auth fail",
        Exit::FAILURES,
        "authSource=admin",
    );
    check(&uri("right"), "none", Exit::SUCCESS, "");
}

#[test]
fn a_clock_that_differs_is_a_warning() {
    let server = Server::mongod(listener(), || {
        let mut reply = standalone();
        let ahead = DateTime::now().timestamp_millis() + 90_000;
        reply.insert("localTime", DateTime::from_millis(ahead));
        reply
    });
    let uri = format!("mongodb://{}/", server.address());
    check(&uri, "clock warn", Exit::WARNINGS, "ahead of");
}

#[test]
fn a_server_that_is_too_old_is_recognized() {
    let server = Server::mongod(listener(), || {
        let mut reply = standalone();
        reply.insert("maxWireVersion", 2);
        reply
    });
    let uri = format!("mongodb://{}/", server.address());
    check(&uri, "hello fail", Exit::FAILURES, "wire versions 0 to 2");
}

#[test]
fn a_server_without_a_set_is_recognized() {
    let server = Server::mongod(listener(), || {
        let mut reply = standalone();
        reply.extend(bson::doc! {
            "ismaster": false, "isWritablePrimary": false, "isreplicaset": true,
        });
        reply
    });
    let uri = format!("mongodb://{}/?replicaSet=rs0", server.address());
    check(&uri, "hello fail", Exit::FAILURES, "rs.initiate()");
}

#[test]
fn a_proxy_that_does_not_run_is_recognized() {
    let server = Server::mongod(listener(), standalone);
    let port = listener().local_addr().unwrap().port();
    let address = server.address();
    let uri = format!("mongodb://{address}/?proxyHost=127.0.0.1&proxyPort={port}");
    check(&uri, "tcp fail", Exit::FAILURES, "proxyPort");
}

/// Panics at each attempt to connect to port 1, and refuses the others.
#[derive(Debug)]
struct Panicking;

#[sdam::async_trait]
impl sdam::Transport for Panicking {
    async fn connect(
        &self,
        target: &ServerAddress,
        _: Option<sdam_core::time::Instant>,
    ) -> Result<Box<dyn sdam::Connection>, TransportError> {
        assert_ne!(target.port(), Some(1), "the check panics");
        Err(TransportError::network(Stage::Hello, "refused by the test"))
    }

    fn with_layers(&self, _: sdam::transport::Layers) -> Option<Arc<dyn sdam::Transport>> {
        Some(Arc::new(Self))
    }
}

#[test]
fn a_check_that_panics_is_an_error_and_the_others_are_made() {
    let tokio = Tokio::new_current_thread().enable_all().build().unwrap();
    let mut output = Vec::new();
    // Behind a proxy no address is dialled alone, so the transport is asked at once.
    let uri = "mongodb://127.0.0.1:1,127.0.0.1:2/?proxyHost=127.0.0.1";
    let exit = tokio.block_on(async {
        let mut runtime = sdam::runtime::tokio().unwrap();
        runtime.io.transport = Arc::new(Panicking);
        examine(&arguments(), uri, &runtime, &mut output, Palette::Plain).await
    });
    assert_eq!(exit.unwrap(), Exit::FAILED);
    let document: Value = serde_json::from_slice(&output).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let hellos = checks.iter().filter(|check| check["id"] == "hello");
    let hellos: Vec<_> = hellos
        .map(|check| check["status"].as_str().unwrap())
        .collect();
    assert_eq!(hellos, ["error", "fail"]);
}

#[test]
fn one_check_can_be_shown_alone() {
    let set = ReplicaSet::start(1).unwrap();
    let mut arguments = arguments();
    arguments.only = vec![Only(check::Check::Hello)];
    let (_, document) = run_json(&arguments, set.uri());
    let checks = document["checks"].as_array().unwrap();
    assert!(!checks.is_empty());
    assert!(checks.iter().all(|check| check["id"] == "hello"));
}

#[test]
fn text_shows_the_matrix_the_problem_and_the_remedy_in_80_columns() {
    let port = listener().local_addr().unwrap().port();
    let set = ReplicaSet::start(1).unwrap();
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

#[test]
fn every_check_is_listed_and_nothing_is_connected() {
    let (mut output, mut remarks) = (Vec::new(), Vec::new());
    let console = Console {
        output: &mut output,
        remarks: &mut remarks,
        palette: Palette::Plain,
    };
    let mut arguments = Arguments {
        list: true,
        ..Arguments::default()
    };
    arguments.target = Target::new("mongodb://127.0.0.1:1/");
    let exit = futures::executor::block_on(run(&arguments, console)).unwrap();
    assert_eq!(exit, Exit::SUCCESS);
    let lines = String::from_utf8(output).unwrap();
    assert_eq!(lines.lines().count(), check::Check::ALL.len());
}
