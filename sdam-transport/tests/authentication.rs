//! Tests of authentication while pooled connections are being opened.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bson::{Document, doc};
use futures::{FutureExt as _, executor::block_on};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    hello::{Handshake, HelloAuth, HelloFields, HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    options::HandshakeOpcode,
    report::ErrorReport,
    time::Instant,
};
use sdam_testkit::{ManualClock, Server, Servers, fixed_reply, mongos};
use sdam_transport::{
    async_trait,
    clock::Clock as _,
    pool::{
        AuthStep, Authenticator, Conversation, Established, PoolContext, PoolHost, Reporter,
        ServiceConnection,
    },
    runtime::Backend,
    wire::OpMsg,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A topology that records reports.
#[derive(Debug, Default)]
struct Host {
    errors: Mutex<Vec<ErrorReport>>,
}

impl PoolHost for Host {
    fn handle_error(self: Arc<Self>, _: ServerId, error: &ErrorReport) -> ErrorOutcome {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.push(error.clone());
        ErrorOutcome::Cleared
    }

    fn handle_handshake(
        self: Arc<Self>,
        _: ServerId,
        _: Generation,
        _: HelloReply,
    ) -> Result<Option<ServiceConnection>, Error> {
        Ok(None)
    }

    fn handle_service_connection_closed(self: Arc<Self>, _: ServiceConnection) {}

    fn generation(&self, _: ServerId, _: Option<ObjectId>) -> Option<Generation> {
        Some(Generation::FIRST)
    }

    fn hello(&self) -> HelloRequest {
        HelloRequest::handshake(Arc::new(Handshake::default()), None, HandshakeOpcode::OpMsg)
    }
}

/// An authenticator that sends two commands. Its field is the result of `begin`; if the field is
/// `None`, `begin` waits forever.
#[derive(Debug)]
struct Script(Option<Result<(), Error>>);

const TWO_COMMANDS: Script = Script(Some(Ok(())));

#[async_trait]
impl Authenticator for Script {
    async fn begin(&self, server: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        assert_eq!(*server, address());
        match self.0.clone() {
            Some(begins) => begins?,
            None => std::future::pending().await,
        }
        Ok(Box::new(Spoken(["saslStart", "saslContinue"].into_iter())))
    }
}

struct Spoken(std::array::IntoIter<&'static str, 2>);

#[async_trait]
impl Conversation for Spoken {
    fn hello_auth(&self) -> HelloAuth {
        let first = doc! { "saslStart": 1, "db": "admin" };
        let mut auth = HelloAuth::default();
        auth.speculative_authenticate = Some(first.to_vec().unwrap().into());
        auth
    }

    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        self.next(hello).await
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        let reply = Document::from_reader(reply).unwrap();
        if reply.contains_key("hang") {
            std::future::pending::<()>().await;
        }
        Ok(match self.0.next() {
            Some(name) => AuthStep::Send(doc! { name: 1, "$db": "admin" }.to_vec().unwrap()),
            None => AuthStep::Done,
        })
    }
}

fn address() -> ServerAddress {
    ServerAddress::new("a", 27017)
}

/// A pool of one server, and its environment.
struct Bench {
    host: Arc<Host>,
    servers: Servers,
    clock: ManualClock,
    pool: PoolContext,
}

impl Bench {
    /// Creates a pool for a server that replies to hello with `hello` and to other commands with
    /// `other`.
    fn new(hello: &Document, other: Option<&Document>) -> Self {
        let clock = ManualClock::default();
        let host = Arc::<Host>::default();
        let mut server = Server::replying(hello);
        server.other = fixed_reply(other.map(|reply| reply.to_vec().unwrap()));
        let servers = Servers::new(clock.clone(), server);
        let backend = Backend::new(Arc::new(clock.clone()), Arc::new(servers.clone()), 1);
        let weak = Arc::downgrade(&host);
        let id = ServerId::from_u64(1);
        let mut pool = PoolContext::new(id, address(), backend);
        pool.reporter = Reporter::new(id, weak);
        Self { host, servers, clock, pool }
    }

    fn establish(&self, script: Script) -> Result<Established, Error> {
        let mut pool = self.pool.clone();
        pool.authenticator = Some(Arc::new(script));
        block_on(pool.establish(Some(TIMEOUT)))
    }
}

/// Checks that `outcome` is a failed authentication, and that it was reported once.
#[track_caller]
fn failure(bench: &Bench, outcome: Result<Established, Error>, kind: ErrorKind) {
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.stage()), (kind, Stage::Auth), "{error}");
    assert_eq!(error.labels().len(), 0);
    assert_eq!(error.outcome(), Some(ErrorOutcome::Cleared));
    assert_eq!(bench.servers.connections(), 0, "the socket is closed");
    let reports = std::mem::take(&mut *bench.host.errors.lock().unwrap());
    let [report] = reports.as_slice() else {
        unreachable!("{reports:?}");
    };
    assert_eq!(
        report.error.clone().with_address(&address()),
        error,
        "the caller learns the server"
    );
}

fn ok() -> Document {
    doc! { "ok": 1 }
}

#[test]
fn a_driver_adds_fields_to_the_handshake_and_reads_the_servers_answer() {
    let mut bench = Bench::new(&mongos(), Some(&ok()));
    bench.servers.change(&address(), |server| {
        server.hello = Arc::new(|request| {
            let request = Document::from_reader(&*request.body).unwrap();
            let mut reply = mongos();
            reply.insert("compression", request.get("compression")?);
            reply.insert("speculativeAuthenticate", doc! { "payload": "secret" });
            reply.to_vec().ok()
        });
    });
    let fields = doc! { "compression": ["zstd"] }.to_vec().unwrap();
    bench.pool.hello_fields = Some(HelloFields::new(&fields).unwrap());
    let connection = bench.establish(TWO_COMMANDS).unwrap();
    let reply = Document::from_reader(connection.hello_reply()).unwrap();
    assert_eq!(reply.get_array("compression").unwrap(), &["zstd".into()]);
    assert!(!reply.contains_key("speculativeAuthenticate"));
    connection.close();
}

#[test]
fn a_message_that_the_server_does_not_accept_by_the_hello_of_its_connection_is_not_sent() {
    // A message that exceeds the limits of the server is not sent (O-36).
    let mut small = mongos();
    small.extend(doc! { "maxBsonObjectSize": 1000, "maxMessageSizeBytes": 2000 });
    let bench = Bench::new(&small, Some(&ok()));
    let mut connection = block_on(bench.pool.establish(None)).unwrap();
    bench.servers.take_log();
    for (length, limit) in [(3_000, " 2000 "), (18_000, " 17384 ")] {
        let body = doc! { "x".repeat(length): 1, "$db": "test" }.to_vec().unwrap();
        let message = OpMsg { body: &body, request_id: 9, ..OpMsg::default() }.encode().unwrap();
        let outcomes = [
            block_on(connection.run_command(&body, None)).map(drop),
            block_on(connection.connection().send(message)),
        ];
        for error in outcomes.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.message().contains(limit), "{error}");
        }
    }
    assert!(connection.is_usable());
    assert!(bench.servers.take_log().is_empty());
    connection.close();
}

#[test]
fn one_time_limit_is_that_of_the_whole_attempt() {
    // One time limit applies to the whole attempt, including authentication (I-14, T-31).
    let check = |script: Script, hello: &Document, other: &Document| {
        let mut bench = Bench::new(hello, Some(other));
        bench.pool.authenticator = Some(Arc::new(script));
        bench.servers.change(&address(), |server| server.delay = Duration::from_secs(4));
        let attempt = bench.pool.establish(Some(TIMEOUT));
        let mut attempt = pin!(attempt);
        // Hello and one command are answered in time, but the next command is not.
        let outcome = loop {
            if let Some(outcome) = (&mut attempt).now_or_never() {
                break outcome;
            }
            bench.clock.advance(Duration::from_secs(1));
        };
        assert_eq!(bench.clock.now(), Instant::EPOCH + TIMEOUT);
        failure(&bench, outcome, ErrorKind::Timeout);
    };
    let hangs = doc! { "hang": true, "ok": 1 };
    check(TWO_COMMANDS, &mongos(), &ok());
    check(TWO_COMMANDS, &hangs, &ok());
    check(TWO_COMMANDS, &mongos(), &hangs);
    check(Script(None), &mongos(), &ok());
}

#[test]
fn a_beginning_that_fails_is_a_failed_authentication_before_hello() {
    let bench = Bench::new(&mongos(), Some(&ok()));
    let script = Script(Some(Err(Error::auth("no random numbers"))));
    let outcome = bench.establish(script);
    failure(&bench, outcome, ErrorKind::Command);
    assert_eq!(bench.servers.take_log(), ["a connect"]);
}
