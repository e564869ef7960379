//! Errors of real sockets, reported as a pool would report them, and their effect on the topology.

use std::{
    fmt,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, executor::block_on};
use sdam::{
    Backend, Connection, Criteria, Error, ErrorOutcome, ErrorReport, EventKind, EventName,
    Generation, Instant, ServerAddress, Stage, Topology, Transport,
};
use sdam_core::options::ServerMonitoringMode;
use sdam_events::channel::unbounded;
use sdam_sim::serve::Builder;
use sdam_transport::{race, wire::Exchange};

/// Opens a port whose first connection is served by `script`.
fn peer(script: impl FnOnce(TcpStream) + Send + 'static) -> ServerAddress {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || script(listener.accept().unwrap().0));
    ServerAddress::new("127.0.0.1", port)
}

/// Returns the error from a pooled connection to `address` that sends a command and awaits the
/// reply.
async fn failure(backend: &Backend, address: &ServerAddress) -> Error {
    let ping = sdam_core::hello::ping(None);
    let command = Exchange::new().command(&ping).unwrap();
    let deadline = Some(backend.clock.now() + Duration::from_secs(30));
    let mut connection = match backend.transport.connect(address, deadline).await {
        Ok(connection) => connection,
        Err(error) => return error,
    };
    if let Err(error) = connection.send(command).await {
        return error;
    }
    let soon = Some(backend.clock.now() + Duration::from_millis(50));
    let patience = if address.host() == SILENT { soon } else { deadline };
    match race::deadline(&*backend.clock, patience, connection.recv()).await {
        Ok(received) => received.unwrap_err(),
        Err(elapsed) => Error::timeout(Stage::Hello, "no reply").with_source(elapsed),
    }
}

/// A second host name for the peer that never answers, so that it is a separate server.
const SILENT: &str = "localhost";

#[test]
fn the_effect_of_a_transport_error_depends_on_its_kind_and_stage() {
    // The effect of each error depends on its kind and stage (I-10, I-11, I-15, I-16, O-36).
    let server = Builder::standalone().start().unwrap();
    let host = tokio::runtime::Runtime::new().unwrap();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let backend = runtime.backend.clone();
    let topology = Topology::builder(server.uri())
        .unwrap()
        .options(|options| {
            // Only a waiting selection causes a check.
            options.heartbeat_frequency = Some(Duration::from_secs(600));
            options.server_monitoring_mode = ServerMonitoringMode::Poll;
        })
        .start(runtime)
        .unwrap();
    let mut clears = 0;
    let mut check = |error: &Error, expected| {
        let selected = block_on(topology.select(&Criteria::write())).unwrap();
        let report = ErrorReport::new(Generation::from_u64(clears), error.clone());
        let outcome = topology.handle_error(selected.id(), &report);
        assert_eq!(outcome, expected, "{error}");
        clears += u64::from(outcome == ErrorOutcome::Cleared);
    };
    let established = |error: &Error| error.clone().at(Stage::Operation);
    let (nothing, cleared) = (ErrorOutcome::Irrelevant, ErrorOutcome::Cleared);

    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = ServerAddress::new("127.0.0.1", closed.port());
    check(&block_on(failure(&backend, &closed)), nothing);

    let unknown = ServerAddress::new(&"a".repeat(300), 27017);
    check(&block_on(failure(&backend, &unknown)), cleared);

    let ends = block_on(failure(&backend, &peer(drop)));
    check(&ends, nothing);
    check(&ends.clone().at(Stage::Auth), cleared);
    check(&established(&ends), cleared);

    // Closing a socket before reading what arrived resets the connection.
    let resets = peer(|stream| {
        stream.peek(&mut [0]).unwrap();
    });
    let reset = block_on(failure(&backend, &resets));
    check(&reset, nothing);
    check(&established(&reset), cleared);

    let silent = peer(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let silent = ServerAddress::new(SILENT, silent.port().unwrap());
    let silence = block_on(failure(&backend, &silent));
    check(&silence, nothing);
    check(&established(&silence), nothing);

    // Sends a header that announces a longer message than a connection accepts.
    let long = peer(|mut stream| {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&48_000_001_i32.to_le_bytes());
        stream.write_all(&header).unwrap();
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let long = block_on(failure(&backend, &long));
    check(&long, cleared);
    check(&established(&long), nothing);
    block_on(topology.close());
}

/// A driver's transport with its own error type.
#[derive(Debug)]
struct Driver;

#[derive(Debug, PartialEq, Eq)]
struct DriverError(u8);

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver error {}", self.0)
    }
}

impl std::error::Error for DriverError {}

#[async_trait]
impl Transport for Driver {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        Err(Error::network(Stage::Dns, "no address").with_source(DriverError(7)))
    }
}

#[test]
fn the_error_of_a_drivers_transport_is_kept_by_descriptions_and_events() {
    let host = tokio::runtime::Runtime::new().unwrap();
    let mut runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    runtime.backend.transport = Arc::new(Driver);
    let (sink, mut events) = unbounded();
    let topology = Topology::builder("mongodb://a.example.com")
        .unwrap()
        .sink(sink.interested_in(EventName::ServerHeartbeatFailed.into()))
        .start(runtime)
        .unwrap();
    let failed = topology.wait_for(
        |snapshot| snapshot.description().servers().first()?.error.clone(),
        Duration::from_secs(30),
    );
    let error = block_on(failed).unwrap();
    assert_eq!(error.source_as(), Some(&DriverError(7)));
    assert_eq!(error.message(), "no address: driver error 7");
    let EventKind::ServerHeartbeatFailed { failure, .. } = block_on(events.next()).unwrap().kind
    else {
        unreachable!("the sink wants nothing else");
    };
    assert_eq!(failure.source_as(), Some(&DriverError(7)));
    block_on(topology.close());
}
