//! The proxy before real servers: PyMongo in direct-connection mode during failovers, and TLS.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use futures::channel::mpsc::UnboundedSender;
use sdam_cli::{
    exit::Exit,
    proxy::{self, Arguments},
    target::Target,
    terminal::Palette,
    watch::Console,
};
use sdam_live::{
    Certificates, Client, MemberSpec, Mongod, ReplicaSet, ServerTls, Socks, or_skip, target_dir,
};

/// The time limit of every wait, for a machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A writer that sends every line to a channel.
struct Lines(String, Sender<String>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += &String::from_utf8_lossy(bytes);
        while let Some((line, rest)) = self.0.split_once('\n') {
            self.1.send(line.to_owned()).map_err(io::Error::other)?;
            self.0 = rest.to_owned();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the command `python3` with PyMongo, which `cargo xtask foreign` fetches; `None` without it.
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

/// A running program: its connection string, its remarks, and how to end it.
struct Running {
    uri: String,
    remarks: Receiver<String>,
    signals: UnboundedSender<()>,
    thread: thread::JoinHandle<io::Result<Exit>>,
}

impl Running {
    fn start(mut arguments: Arguments) -> Self {
        arguments.listen = ([127, 0, 0, 1], 0).into();
        let ((output, lines), (remarks, remarked)) = (mpsc::channel(), mpsc::channel());
        let (signals, signalled) = futures::channel::mpsc::unbounded();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let console = Console {
                output: Lines(String::new(), output),
                remarks: Lines(String::new(), remarks),
                palette: Palette::Plain,
            };
            runtime.block_on(proxy::run(&arguments, console, signalled))
        });
        Self {
            uri: lines.recv_timeout(TIMEOUT).unwrap(),
            remarks: remarked,
            signals,
            thread,
        }
    }

    fn next_primary(&self) {
        let next = || self.remarks.recv_timeout(TIMEOUT).unwrap();
        while !next().starts_with("primary: ") {}
    }

    fn finish(self) {
        // The clients have gone, so the program has nothing to wait for.
        self.signals.unbounded_send(()).unwrap();
        let exit = self.thread.join().unwrap();
        assert_eq!(exit.unwrap(), Exit::SUCCESS);
    }
}

#[test]
fn no_acknowledged_write_is_lost_when_the_primary_steps_down_and_when_it_is_killed() {
    let Some(mut python) = python() else {
        eprintln!("SKIPPED a live test, there is no PyMongo: `cargo xtask foreign` fetches it");
        return;
    };
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let Some(set) = or_skip(ReplicaSet::start(None, &members)).unwrap() else {
        return;
    };
    let mut arguments = Arguments::default();
    arguments.target = Target::new(&format!("{}&heartbeatFrequencyMS=500", set.uri()));
    let program = Running::start(arguments);
    program.next_primary();

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/pymongo/through_proxy.py");
    let mut client = python
        .arg(script)
        .arg(&program.uri)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut input = client.stdin.take().unwrap();
    let mut writes = || {
        writeln!(input).unwrap();
        assert_eq!(printed.next().unwrap().unwrap(), "writing");
    };
    writes();
    set.step_down().unwrap();
    program.next_primary();
    writes();
    set.member(set.primary().unwrap()).kill().unwrap();
    program.next_primary();
    writes();
    drop(input);
    let result = printed.next().unwrap().unwrap();
    eprintln!("{result}");
    assert!(result.starts_with("missing=0 "), "{result}");
    assert!(client.wait().unwrap().success());
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
        let mut arguments = Arguments::default();
        arguments.target = Target::new(&format!("mongodb://localhost:{port}/?{options}"));
        arguments.tls_passthrough = tls_passthrough;
        let program = Running::start(arguments);
        let rest = program.uri.strip_prefix("mongodb://").unwrap();
        let (address, options) = rest.split_once("/?").unwrap();
        let client = Client::connect_with_timeout(address.parse().unwrap(), TIMEOUT);
        let reply = client.and_then(|mut client| client.hello());
        let options = options.to_owned();
        program.finish();
        (
            options,
            reply
                .map(|reply| reply.get_bool("isWritablePrimary").unwrap())
                .ok(),
        )
    };
    assert_eq!(
        check(false),
        ("directConnection=true".to_owned(), Some(true))
    );
    // The server refuses a client that does not speak TLS with it.
    assert_eq!(
        check(true),
        ("directConnection=true&tls=true".to_owned(), None)
    );
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
    let mut arguments = Arguments::default();
    arguments.target = Target::new(&uri);
    let program = Running::start(arguments);
    let rest = program.uri.strip_prefix("mongodb://").unwrap();
    let (address, _) = rest.split_once("/?").unwrap();
    let client = Client::connect_with_timeout(address.parse().unwrap(), TIMEOUT);
    let mut client = client.unwrap();
    client.hello().unwrap();
    socks.kill().unwrap();
    client.hello().unwrap_err();
    program.finish();
}
