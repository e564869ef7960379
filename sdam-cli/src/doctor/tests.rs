//! Tests of complete check-ups: a gallery of deployments, and the options of the command line.

mod gallery;
mod remedies;

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use bson::{Document, doc};
use sdam::{
    Error, Resolver, Runtime,
    runtime::SrvRecords,
    tls::rustls::{
        ServerConfig, ServerConnection, StreamOwned,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};
use sdam_core::{address::ServerAddress, error::Stage, uri::ConnectionString};
use sdam_live::{Certificates, Port, ServerCertificate};
use sdam_sim::{Blueprint, Served, serve::Listen};
use sdam_transport::wire::{OpCode, OpMsg, OpReply, WireMessage};
use serde_json::Value;
use tokio::{net::TcpSocket, runtime::Builder as Tokio};

use super::*;
use crate::{
    cli::tests::doctor,
    terminal::{Palette, WIDTH, columns},
};

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
/// load, and without findings about round-trip times, which may be long on such a machine.
fn arguments() -> Arguments {
    doctor(&["--json", "--timeout=3", "--suppress=rtt"])
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

/// Checks that the first problem of the deployment at `uri` is `expected`, that the exit code
/// corresponds to this problem, and that the finding contains `words`. Returns the finding.
fn check(uri: &str, expected: &str, words: &str) -> Value {
    check_with(&arguments(), uri, expected, words)
}

fn check_with(arguments: &Arguments, uri: &str, expected: &str, words: &str) -> Value {
    let seen = observe(arguments, uri);
    let exit = match expected.rsplit_once(' ') {
        None => Exit::SUCCESS,
        Some((_, "warn")) => Exit::WARNINGS,
        Some(("uri", _)) => Exit::CONFIGURATION,
        _ => Exit::FAILURES,
    };
    let document = check_formats(arguments, uri, &seen, exit);
    let (problem, finding) = first(&document);
    assert_eq!(problem, expected, "{document:#}");
    assert_eq!(document["verdict"] == "ok", expected == "none");
    assert!(finding.to_string().contains(words), "{words:?} in {finding:#}");
    finding
}

/// Checks that a healthy deployment at `uri` has no finding.
fn sound(uri: &str) {
    check(uri, "none", "");
}

/// Returns the finding of the check `id`.
fn found<'d>(document: &'d Value, id: &str) -> &'d Value {
    let mut checks = document["checks"].as_array().unwrap().iter();
    checks.find(|check| check["id"] == id).unwrap()
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
    let subject = finding["subject"].as_str().unwrap_or_default();
    let name = match finding["id"].as_str() {
        None => "No problem was found".to_owned(),
        Some(id) => format!("First problem: {id} {subject}").trim_end().to_owned(),
    };
    assert_eq!(text.matches(&name).count(), 1, "{name:?} in {text}");
    assert_eq!(text.matches("First problem:").count(), usize::from(problem != "none"));
    if problem != "none" {
        let remedies = strings(&finding["remedies"]);
        assert!(!remedies.is_empty(), "{finding:#}");
        let text = words(&text);
        assert!(remedies.iter().all(|own| text.contains(&words(own))), "{text}");
        let said = format!("{subject} {}", remedies.join(" "));
        let mut hosts = seen.hosts.iter();
        let is_named = hosts.any(|host| said.contains(host.address.as_str()))
            || ConnectionString::known_options().any(|name| said.contains(name))
            || (!subject.is_empty() && uri.contains(subject))
            || uri.split('/').nth(2).is_some_and(|host| said.contains(host));
        assert!(is_named, "{finding:#}");
    }
    document
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
fn parse(words: &str) -> Arguments {
    doctor(&["--timeout=3", "--json", words])
}

#[test]
fn suppressed_findings_do_not_count_but_stay_in_json() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let (_port, closed) = closed();
    let uri = format!("mongodb://{closed},{}/?replicaSet=rs0", set.places()[0].0);
    let host = closed.to_string();
    let seen = observe(&arguments(), &uri);
    let check = |suppressed: &str, expected: &str, exit| {
        let arguments = parse(&format!("--suppress={suppressed}"));
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
    let arguments = parse("--suppress=uri");
    let (exit, _) = run_json(&arguments, "mongodb:/a");
    assert_eq!(exit, Exit::CONFIGURATION);
}

#[test]
fn the_severity_of_a_failing_exit_code_can_be_chosen() {
    let server = mongod(listener(), standalone);
    let warned = format!("mongodb://{server}/?localTresholdMS=20");
    let (_port, closed) = closed();
    let failed = format!("mongodb://{closed}/");
    for (fail_on, codes) in [
        ("warning", [Exit::WARNINGS, Exit::FAILURES]),
        ("failure", [Exit::SUCCESS, Exit::FAILURES]),
        ("never", [Exit::SUCCESS, Exit::SUCCESS]),
    ] {
        let arguments = parse(&format!("--fail-on={fail_on}"));
        let uris = [&*warned, &*failed, "mongodb:/a"];
        let exits = uris.map(|uri| run_json(&arguments, uri).0);
        assert_eq!(exits, [codes[0], codes[1], Exit::CONFIGURATION], "{fail_on}");
    }
}

#[test]
fn text_shows_the_matrix_the_problem_and_the_remedy_in_80_columns() {
    let (_port, closed) = closed();
    let set = Blueprint::replica_set(1).serve().unwrap();
    let uri = format!("mongodb://{closed},{}/?replicaSet=rs0", set.places()[0].0);
    let mut arguments = arguments();
    arguments.json = false;
    let (exit, text) = run_with(&arguments, &uri, Vec::new());
    assert_eq!(exit, Exit::FAILURES, "{text}");
    assert!(text.lines().all(|line| columns(line) <= WIDTH), "{text}");
    for words in [
        "  addr  tcp   tls   hello rtt".to_owned(),
        format!("FAIL tcp {closed} the host refuses"),
        "     do        start the server".to_owned(),
        format!("First problem: tcp {closed}"),
    ] {
        assert!(text.contains(words.trim()), "{words:?} in {text}");
    }
}

/// Starts a server that calls `serve` for each connection, on a separate thread. Returns the
/// server's address.
fn start(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = Arc::clone(&serve);
            // The thread ends when the client closes the connection.
            thread::spawn(move || stream.and_then(|stream| serve(stream)));
        }
    });
    address
}

/// Starts a server that answers every command with `reply`.
fn mongod(
    listener: TcpListener,
    reply: impl Fn() -> Document + Send + Sync + 'static,
) -> SocketAddr {
    start(listener, move |stream| converse(stream, &reply))
}

/// Starts a server that answers like a standalone server behind TLS.
fn tls(certificates: &Certificates, certificate: ServerCertificate) -> SocketAddr {
    tls_for(None, certificates, certificate)
}

/// Starts a server behind TLS. If it verifies `clients`, it also accepts connections without TLS,
/// like `mongod --tlsMode preferTLS`.
fn tls_for(
    clients: Option<Arc<dyn ClientCertVerifier>>,
    certificates: &Certificates,
    certificate: ServerCertificate,
) -> SocketAddr {
    let file = certificates.server(certificate);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&file).unwrap().collect();
    let key = PrivateKeyDer::from_pem_file(&file).unwrap();
    let is_lax = clients.is_some();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth));
    let config = Arc::new(config.with_single_cert(chain.unwrap(), key).unwrap());
    start(listener(), move |stream| {
        let mut first = [0];
        stream.peek(&mut first)?;
        if is_lax && first != [22] {
            return converse(stream, &standalone);
        }
        let session = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        converse(StreamOwned::new(session, stream), &standalone)
    })
}

/// A port that drops the packets of new connections because its accept queue is full.
#[derive(Debug)]
pub(in crate::doctor) struct Dropping {
    pub(in crate::doctor) address: SocketAddr,
    _queued: Vec<TcpStream>,
    _listener: tokio::net::TcpListener,
    _runtime: tokio::runtime::Runtime,
}

impl Dropping {
    pub(in crate::doctor) fn start() -> Self {
        let runtime = Tokio::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(([127, 0, 0, 1], 0).into())?;
            socket.listen(0)
        });
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        Self {
            address,
            _queued: std::iter::from_fn(connect).collect(),
            _listener: listener,
            _runtime: runtime,
        }
    }
}

/// Reserves a port at which nothing listens, and returns its address.
fn closed() -> (Port, SocketAddr) {
    let port = Port::reserve().unwrap();
    let address = port.address();
    (port, address)
}

/// Returns a listener on a free port.
fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Returns a standalone server's reply to hello.
fn standalone() -> Document {
    doc! {
        "ismaster": true, "isWritablePrimary": true, "helloOk": true,
        "minWireVersion": 0, "maxWireVersion": 21,
        "localTime": bson::DateTime::now(), "ok": 1,
    }
}

/// Answers every command of a connection with `reply`.
fn converse(mut stream: impl Read + Write, reply: &impl Fn() -> Document) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut bytes = length.to_vec();
        let rest = usize::try_from(i32::from_le_bytes(length)).map_err(io::Error::other)?;
        bytes.resize(rest.clamp(16, 1 << 20), 0);
        stream.read_exact(&mut bytes[4..])?;
        let request = WireMessage::decode(bytes).map_err(io::Error::other)?;
        let body = bson::serialize_to_vec(&reply()).map_err(io::Error::other)?;
        let (request_id, response_to) = (1, request.request_id());
        let answer = if request.op_code() == OpCode::Query {
            let flags = OpReply::AWAIT_CAPABLE;
            OpReply { request_id, response_to, flags, body: &body }.encode()
        } else {
            OpMsg { request_id, response_to, body: &body, ..OpMsg::default() }.encode()
        };
        stream.write_all(answer.map_err(io::Error::other)?.as_bytes())?;
        stream.flush()?;
    }
}
