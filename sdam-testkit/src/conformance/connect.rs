//! Checks of the transport contract.

use std::{io, net::TcpListener, time::Duration};

use futures::FutureExt as _;
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    ids::Generation,
    report::ErrorReport,
    time::Instant,
};

use super::{
    Outcome, Run,
    connection::{exchange, message, send},
    ensure,
    peer::{self, Blackhole, Peer, Refusing, echo, listen},
};
use sdam_transport::{connect::Connection, runtime::Backend};

pub(super) async fn host_names_are_looked_up_and_all_families_tried(
    backend: Backend,
    run: Run,
) -> Outcome {
    // No peer listens on ::1, which is the first address of localhost on many machines.
    let peer = Peer::start(echo)?;
    let port = peer.address.port().unwrap_or_default();
    let mut connection = open(&backend, &ServerAddress::new("localhost", port), &run).await?;
    exchange(&mut *connection, 1, 0, &run).await
}

pub(super) async fn an_invalid_host_name_fails_at_stage_dns(backend: Backend, run: Run) -> Outcome {
    run.step("connecting to a host whose name is too long for the DNS");
    // A label of more than 63 bytes is invalid, so resolvers refuse it without sending a query.
    let target = ServerAddress::new(&"a".repeat(300), 27017);
    let error = refused(&backend, &target, backend.clock.now() + STEP_TIMEOUT).await?;
    expect(&error, ErrorKind::Network, Stage::Dns)
}

pub(super) async fn a_refused_connect_is_a_network_error(backend: Backend, run: Run) -> Outcome {
    let refusing = Refusing::start()?;
    run.step("connecting to a port that is closed");
    let error = refused(&backend, &refusing.address, backend.clock.now() + STEP_TIMEOUT).await?;
    expect(&error, ErrorKind::Network, Stage::Connect)
}

pub(super) async fn a_connect_without_reply_times_out(backend: Backend, run: Run) -> Outcome {
    let Some(blackhole) = run.on_own_thread(Blackhole::start).await?? else {
        return Ok(());
    };
    let deadline = backend.clock.now() + Duration::from_millis(50);
    run.step("connecting to a port that does not answer, by a deadline of 50 milliseconds");
    let error = refused(&backend, &blackhole.address, deadline).await?;
    ensure!(backend.clock.now() >= deadline, "it timed out early: {error:#}");
    expect(&error, ErrorKind::Timeout, Stage::Connect)
}

pub(super) async fn a_dropped_connect_is_abandoned(backend: Backend, run: Run) -> Outcome {
    let (listener, address) = listen()?;
    run.step("dropping an attempt to connect that was polled once");
    // Depending on the system, the attempt may already have finished.
    drop(backend.transport.connect(&address, None).now_or_never());
    drop(backend.transport.connect(&address, None));
    let peer = Peer::run(address, move || first_message(&listener));
    let mut connection = open(&backend, &peer.address, &run).await?;
    send(&mut *connection, message(1, 0)?).await?;
    run.step("waiting for the peer to see that the socket of a dropped attempt is closed");
    peer.finish(&run).await
}

/// Accepts connections until one of them sends a message. All earlier connections must be closed.
fn first_message(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(peer::READ_TIMEOUT))?;
        match peer::read_message(&mut stream) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(not(unix))]
pub(super) async fn unix_sockets_work_or_are_unsupported(_: Backend, _: Run) -> Outcome {
    Ok(())
}

#[cfg(unix)]
pub(super) async fn unix_sockets_work_or_are_unsupported(backend: Backend, run: Run) -> Outcome {
    use std::{env, fs, os::unix::net::UnixListener, process};

    use sdam_transport::dial::DialTarget;

    let name = format!("sdam-{}-{:x}.sock", process::id(), sdam_transport::system::entropy());
    let path = env::temp_dir().join(name);
    let address = ServerAddress::unix(&path.to_string_lossy());
    run.step("connecting to a path where there is no socket");
    let error = refused(&backend, &address, backend.clock.now() + STEP_TIMEOUT).await?;
    expect(&error, ErrorKind::Network, Stage::Connect)?;
    let unsupported = DialTarget::Unix(path.clone()).unsupported().to_string();
    if error.message().contains(&unsupported) {
        return Ok(());
    }

    let listener = UnixListener::bind(&path).map_err(|error| format!("{error:#}"))?;
    let peer = Peer::run(address, move || echo(&mut listener.accept()?.0));
    let outcome = async {
        let mut connection = open(&backend, &peer.address, &run).await?;
        exchange(&mut *connection, 1, 100, &run).await
    };
    let outcome = outcome.await;
    fs::remove_file(&path).map_err(|error| format!("{error:#}"))?;
    outcome?;
    peer.finish(&run).await.map(drop)
}

/// Connects to `address`, which has a listener.
pub(super) async fn open(
    backend: &Backend,
    address: &ServerAddress,
    run: &Run,
) -> Result<Box<dyn Connection>, String> {
    run.step("connecting to a port that listens");
    let deadline = Some(backend.clock.now() + STEP_TIMEOUT);
    let connected = backend.transport.connect(address, deadline).await;
    let mut connection = connected.map_err(|error| format!("{error:#}"))?;
    connection.set_deadline(deadline);
    Ok(connection)
}

/// Connects to `address`, which has no listener, and returns the error.
async fn refused(
    backend: &Backend,
    address: &ServerAddress,
    deadline: Instant,
) -> Result<Error, String> {
    match backend.transport.connect(address, Some(deadline)).await {
        Ok(_) => Err(format!("connecting to {address} succeeded")),
        Err(error) => Ok(error),
    }
}

/// Checks the error's kind and stage, and the labels that a pool's report would add to it.
pub(super) fn expect(error: &Error, kind: ErrorKind, stage: Stage) -> Outcome {
    ensure!(
        error.kind() == kind && error.stage() == stage,
        "expected {kind:?} at {stage:?}, got: {error:#}"
    );
    let overload = kind != ErrorKind::Protocol && stage != Stage::Dns;
    let report = ErrorReport::new(Generation::FIRST, error.clone());
    ensure!(
        report.error.is_overload() == overload,
        "the labels {:?} are wrong for: {error:#}",
        report.error.labels().collect::<Vec<_>>()
    );
    Ok(())
}

/// The deadline of attempts that are expected to succeed. They do not need nearly that long.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
