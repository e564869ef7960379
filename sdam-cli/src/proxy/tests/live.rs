//! Tests the proxy with real servers: PyMongo in direct-connection mode during failovers, and TLS.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::TryRecvError,
    thread,
    time::Instant,
};

use bson::doc;
use sdam::{ReadPreference, TopologyType, client};
use sdam_live::{
    Certificates, Client, Error, MemberSpec, Mongod, ReplicaSet as RealSet, ServerTls, Socks,
    or_skip, target_dir,
};

use super::{
    harness::{Running, TIMEOUT, arguments},
    *,
};
use crate::testing::block_on;

/// Returns the command `python3`, set up to import the PyMongo that `cargo xtask foreign` fetches;
/// `None` if PyMongo is missing.
fn python() -> Option<Command> {
    let python = || {
        let mut command = Command::new("python3");
        let folder = target_dir().join("foreign/pymongo-4.20.0");
        command.env("PYTHONPATH", folder);
        command
    };
    let found = python().args(["-c", "import pymongo"]).output();
    found.is_ok_and(|found| found.status.success()).then(python)
}

/// Starts the program for the deployment at `uri`.
fn start(uri: &str) -> Running {
    Running::start(Arguments { target: Target::new(uri), ..arguments() })
}

fn next_primary(program: &Running) {
    program.remark("primary: ", &[""]);
}

/// Returns the address to which clients connect.
fn address(program: &Running) -> SocketAddr {
    let rest = program.uris[0].strip_prefix("mongodb://").unwrap();
    rest.split_once("/?").unwrap().0.parse().unwrap()
}

/// A Python program that writes documents with PyMongo until its input ends.
struct Writer {
    child: Child,
    input: ChildStdin,
    printed: io::Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(mut python: Command, uri: &str, collection: &str, concern: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut child = python
            .arg(folder.join("../proof/foreign/pymongo/through_proxy.py"))
            .args([uri, collection, concern])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut writer = Self {
            input: child.stdin.take().unwrap(),
            printed: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        };
        writer.gap();
        writer
    }

    /// Waits until a document that is sent after this call is acknowledged. Returns the longest
    /// time without an acknowledgement since the previous call.
    fn gap(&mut self) -> String {
        writeln!(self.input).unwrap();
        let line = self.printed.next().unwrap().unwrap();
        line.strip_prefix("gap=").unwrap().to_owned()
    }

    /// Ends the Python program, and returns its results.
    fn finish(mut self) -> String {
        drop(self.input);
        let result = self.printed.next().unwrap().unwrap();
        assert!(self.child.wait().unwrap().success());
        result
    }
}

fn assert_closed(result: &Result<(), Error>) {
    let kinds =
        [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    let is_closed =
        |error: &Error| matches!(error, Error::Io(_, error) if kinds.contains(&error.kind()));
    assert!(result.as_ref().err().is_some_and(is_closed), "{result:?}");
}

/// Stops the process of the primary while it has idle connections, and one connection in the middle
/// of an insert. Checks that all of them are closed once another primary is known, and that nothing
/// reaches the old primary when it continues.
fn pause(set: &RealSet, program: &Running, mut others_write: impl FnMut()) {
    let address = address(program);
    let connect = || Client::connect_with_timeout(address, TIMEOUT).unwrap();
    let insert = |marker: &str| doc! { "insert": "marked", "documents": [{ "marker": marker }], "writeConcern": { "w": "majority" } };
    let old = set.primary().unwrap();
    let mut idle = [(); 3].map(|()| connect());
    for client in &mut idle {
        client.run_command("test", insert("before")).unwrap();
    }
    let mut asking = connect();
    asking.hello().unwrap();

    set.member(old).sigstop().unwrap();
    let asked = thread::spawn({
        let insert = insert("asked");
        move || {
            let result = asking.run_command("test", insert);
            (result.map(drop), Instant::now())
        }
    });
    next_primary(program);
    let switched = Instant::now();
    let (result, closed) = asked.join().unwrap();
    assert_closed(&result);
    let late = closed.saturating_duration_since(switched);
    eprintln!("the connection to the old primary was closed {late:?} after the switch");
    others_write();
    set.member(old).sigcont().unwrap();
    for client in &mut idle {
        let result = client.run_command("test", insert("late"));
        assert_closed(&result.map(drop));
    }
    set.wait_until_settled().unwrap();
    let count = |marker: &str| {
        let count = doc! { "count": "marked", "query": { "marker": marker } };
        let new = set.member(set.primary().unwrap());
        new.run_command("test", count).unwrap().get_i32("n").unwrap()
    };
    assert_eq!([count("before"), count("asked"), count("late")], [3, 0, 0]);
    // When the old primary continued, it briefly answered as primary. The proxy must have ignored
    // that.
    assert_eq!(program.remarks.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn no_acknowledged_write_is_lost_when_the_primary_steps_down_is_stopped_and_is_killed() {
    if python().is_none() {
        eprintln!("SKIPPED a live test, there is no PyMongo: `cargo xtask foreign` fetches it");
        return;
    }
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let Some(set) = or_skip(RealSet::start(None, &members)).unwrap() else {
        return;
    };
    let uri = format!("{}&heartbeatFrequencyMS=500", set.uri());
    let program = start(&uri);
    next_primary(&program);
    // To PyMongo, the address of this proxy looks like a mongos.
    let mut arguments = arguments();
    arguments.target = Target::new(&uri);
    arguments.advertise = Some("localhost".parse().unwrap());
    let advertised = Running::start(arguments);
    let writer = |uri: &str, name, concern| Writer::start(python().unwrap(), uri, name, concern);
    let careful = writer(&program.uris[0], "careful", "majority");
    let discovering = writer(&advertised.uris[0], "discovering", "majority");
    let mut proxied = writer(&program.uris[0], "proxied", "1");
    let mut direct = writer(&uri, "direct", "1");
    let mut gaps = |event: &str| {
        let [proxied, direct] = [&mut proxied, &mut direct].map(Writer::gap);
        eprintln!("{event}: no write for {proxied} s through the proxy, {direct} s directly");
    };
    gaps("start");
    let old = set.step_down().unwrap();
    next_primary(&program);
    gaps("step-down");
    // Allow the old primary to be elected again immediately.
    let unfreeze = doc! { "replSetFreeze": 0 };
    set.member(old).run_command("admin", unfreeze).unwrap();
    pause(&set, &program, || gaps("pause"));
    gaps("end of the pause");
    set.member(set.primary().unwrap()).kill().unwrap();
    next_primary(&program);
    gaps("kill");
    for mut careful in [careful, discovering] {
        careful.gap();
        let result = careful.finish();
        eprintln!("{result}");
        assert!(result.starts_with("missing=0 "), "{result}");
    }
    // These writers do not wait for a majority, so the last writes to each primary may be missing.
    for writer in [proxied, direct] {
        writer.finish();
    }
    program.finish();
    advertised.finish();
}

/// The client believes that the proxy is a mongos, so it sends sessions and, with each read,
/// `$readPreference`.
#[test]
fn real_members_accept_what_a_client_sends_that_sees_a_mongos() {
    let Some(set) = or_skip(RealSet::start(None, &[MemberSpec::new(), MemberSpec::new()])).unwrap()
    else {
        return;
    };
    let mut arguments = arguments();
    arguments.target = Target::new(&set.uri());
    arguments.advertise = Some("127.0.0.1".parse().unwrap());
    arguments.read = Some(ReadMode::Secondary);
    arguments.listen_read = Some(([127, 0, 0, 1], 0).into());
    let program = Running::start(arguments);
    block_on(async {
        let start = |uri: &str| client::Client::start(uri, sdam::runtime::tokio().unwrap());
        let [writer, reader] = [0, 1].map(|port| start(&program.uris[port]).unwrap());
        let insert =
            doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": 2 } };
        let insert = insert.to_vec().unwrap();
        writer.run(&client::Command::write("test", &insert)).await.unwrap();
        let find = doc! { "find": "c", "readConcern": { "level": "majority" } }.to_vec().unwrap();
        reader.run(&client::Command::read("test", &find)).await.unwrap();
        // Check that reads reach a secondary: it refuses a read in mode primary.
        let primary = Criteria::read(ReadPreference::new(ReadMode::Primary)).unwrap();
        let error = reader.run(&client::Command::read("test", &find).with_criteria(primary)).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("not primary") || error.contains("not master"), "{error}");
        for client in [writer, reader] {
            let snapshot = client.topology().snapshot();
            assert_eq!(snapshot.description().topology_type(), TopologyType::Sharded);
            client.close().await;
        }
    });
    program.finish();
}

#[test]
fn the_proxy_speaks_tls_with_members_unless_clients_do() {
    let certificates = Certificates::create().map(Arc::new).unwrap();
    let tls = ServerTls::new(&certificates);
    let Some(server) = or_skip(Mongod::start_tls(None, &tls, &[])).unwrap() else {
        return;
    };
    let port = server.address().port();
    let check = |tls_passthrough: bool| {
        let options = certificates.options();
        let mut arguments = arguments();
        arguments.target = Target::new(&format!("mongodb://localhost:{port}/?{options}"));
        arguments.tls_passthrough = tls_passthrough;
        let program = Running::start(arguments);
        let client = Client::connect_with_timeout(address(&program), TIMEOUT);
        let reply = client.and_then(|mut client| client.hello());
        let (_, options) = program.uris[0].split_once("/?").unwrap();
        let options = options.to_owned();
        program.finish();
        (options, reply.map(|reply| reply.get_bool("isWritablePrimary").unwrap()).ok())
    };
    assert_eq!(check(false), ("directConnection=true".to_owned(), Some(true)));
    // The server requires TLS, so it refuses a client that does not use TLS.
    assert_eq!(check(true), ("directConnection=true&tls=true".to_owned(), None));
}

#[test]
fn the_proxy_reaches_members_through_a_socks_proxy() {
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    let Some(server) = or_skip(Mongod::start(None)).unwrap() else {
        return;
    };
    let (host, through) = (server.host(), socks.address());
    let (name, port) = (through.ip(), through.port());
    let uri = format!("mongodb://{host}/?proxyHost={name}&proxyPort={port}");
    let program = start(&uri);
    let client = Client::connect_with_timeout(address(&program), TIMEOUT);
    let mut client = client.unwrap();
    client.hello().unwrap();
    socks.kill().unwrap();
    client.hello().unwrap_err();
    program.finish();
}
