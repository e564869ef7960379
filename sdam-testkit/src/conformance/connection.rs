//! Checks of the contracts of the transport and its connections.

use std::{
    io::{self, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    time::Duration,
};

use futures::{FutureExt as _, executor::block_on};
use sdam_core::{
    address::ServerAddress,
    document::DocumentWriter,
    error::{Error, ErrorKind, Stage},
    ids::Generation,
    report::ErrorReport,
    time::Instant,
};
use sdam_transport::{
    connect::Connection,
    race,
    runtime::Backend,
    wire::{OpMsg, WireMessage},
};

use super::{
    Outcome, Run, ensure,
    peer::{self, Blackhole, Peer, Refusing, echo, listen, wait_for_close},
};

pub(super) async fn messages_arrive_in_both_directions(backend: Backend, run: Run) -> Outcome {
    let (peer, mut connection) = meet(echo, &backend, &run).await?;
    for request_id in 1..=3 {
        exchange(&mut *connection, request_id, 100, &run).await?;
    }
    drop(connection);
    run.step("waiting for the peer to see the end of a dropped connection");
    let echoed = peer.finish(&run).await?;
    ensure!(echoed == 3, "the peer received {echoed} of 3 messages");
    Ok(())
}

pub(super) async fn long_messages_arrive_whole(backend: Backend, run: Run) -> Outcome {
    let (_peer, mut connection) = meet(echo, &backend, &run).await?;
    // The length of the longest document, plus the overhead of a reply.
    exchange(&mut *connection, 1, (16 << 20) + (16 << 10), &run).await
}

pub(super) async fn the_message_size_limit_can_be_set(backend: Backend, run: Run) -> Outcome {
    let (_peer, mut connection) = meet(echo, &backend, &run).await?;
    connection.set_max_message_size(1000);
    exchange(&mut *connection, 1, 100, &run).await?;
    connection.set_max_message_size(100);
    send(&mut *connection, message(2, 100)?).await?;
    run.step("receiving a message that is longer than the limit that was set");
    no_message(&mut *connection, ErrorKind::Protocol).await
}

pub(super) async fn an_oversized_message_is_refused_by_its_header(
    backend: Backend,
    run: Run,
) -> Outcome {
    let mut header = message(1, 0)?.into_bytes();
    header.truncate(16);
    header[..4].copy_from_slice(&i32::MAX.to_le_bytes());
    // The peer sends only the header, so only the announced length can end the wait.
    let script = move |stream: &mut TcpStream| {
        stream.write_all(&header)?;
        wait_for_close(stream)
    };
    let (peer, mut connection) = meet(script, &backend, &run).await?;
    run.step("receiving the header of a message of 2 GiB, and nothing more");
    no_message(&mut *connection, ErrorKind::Protocol).await?;
    drop(connection);
    peer.finish(&run).await
}

pub(super) async fn a_closed_connection_is_a_network_error(backend: Backend, run: Run) -> Outcome {
    let script = |stream: &mut TcpStream| stream.shutdown(Shutdown::Both);
    let (peer, mut connection) = meet(script, &backend, &run).await?;
    peer.finish(&run).await?;
    run.step("receiving on a connection that the peer has closed");
    no_message(&mut *connection, ErrorKind::Network).await
}

pub(super) async fn a_reset_connection_is_a_network_error(backend: Backend, run: Run) -> Outcome {
    // Closing a socket that has unread data resets the connection.
    let script = |stream: &mut TcpStream| stream.peek(&mut [0]);
    let (peer, mut connection) = meet(script, &backend, &run).await?;
    run.step("sending to a peer that resets the connection");
    send(&mut *connection, message(1, 0)?).await?;
    peer.finish(&run).await?;
    run.step("receiving on a connection that the peer has reset");
    no_message(&mut *connection, ErrorKind::Network).await
}

pub(super) async fn a_truncated_message_is_a_network_error(backend: Backend, run: Run) -> Outcome {
    for part in [7, 20] {
        let whole = message(1, 0)?.into_bytes();
        let script = move |stream: &mut TcpStream| stream.write_all(&whole[..part]);
        let (peer, mut connection) = meet(script, &backend, &run).await?;
        peer.finish(&run).await?;
        run.step("receiving half a message and the end of the connection");
        no_message(&mut *connection, ErrorKind::Network).await?;
    }
    Ok(())
}

pub(super) async fn a_silent_connection_times_out_at_the_deadline(
    backend: Backend,
    run: Run,
) -> Outcome {
    let (peer, mut connection) = meet(wait_for_close, &backend, &run).await?;
    send(&mut *connection, message(1, 0)?).await?;
    let deadline = backend.clock.now() + Duration::from_millis(50);
    connection.set_deadline(Some(deadline));
    run.step("receiving from a silent peer by a deadline of 50 milliseconds");
    // A blocking connection enforces its own deadline. For other connections, the race drops the
    // future at the deadline.
    match race::deadline(&*backend.clock, Some(deadline), connection.recv()).await {
        Ok(Ok(message)) => return Err(format!("{message:?} was never sent")),
        Ok(Err(error)) => expect(&error, ErrorKind::Timeout, Stage::Hello)?,
        Err(_) => {}
    }
    ensure!(backend.clock.now() >= deadline, "it timed out early");
    connection.set_deadline(None);
    run.step("using a connection after a receive that timed out");
    unusable(&mut *connection).await?;
    drop(connection);
    peer.sees_the_end(&run).await
}

pub(super) async fn a_dropped_connection_is_closed(backend: Backend, run: Run) -> Outcome {
    let (peer, connection) = meet(wait_for_close, &backend, &run).await?;
    drop(connection);
    run.step("waiting for the peer to see that a dropped connection is closed");
    peer.finish(&run).await
}

pub(super) async fn a_dropped_receive_makes_the_connection_unusable(
    backend: Backend,
    run: Run,
) -> Outcome {
    let (peer, mut connection) = meet(wait_for_close, &backend, &run).await?;
    send(&mut *connection, message(1, 0)?).await?;
    run.step("polling once a receive without a reply");
    ensure!(connection.recv().now_or_never().is_none(), "a receive is ready, but nothing was sent");
    run.step("using a connection after a receive that was dropped");
    unusable(&mut *connection).await?;
    drop(connection);
    peer.sees_the_end(&run).await
}

pub(super) async fn an_idle_connection_can_be_looked_at(backend: Backend, run: Run) -> Outcome {
    let (_peer, mut connection) = meet(echo, &backend, &run).await?;
    for request_id in 1..=2 {
        run.step("polling once a receive on an idle connection");
        look(&mut *connection, &backend, ErrorKind::Timeout)?;
        exchange(&mut *connection, request_id, 0, &run).await?;
    }
    let script = |stream: &mut TcpStream| stream.shutdown(Shutdown::Both);
    let (peer, mut connection) = meet(script, &backend, &run).await?;
    peer.finish(&run).await?;
    run.step("polling once a receive on a connection that the peer has closed");
    look(&mut *connection, &backend, ErrorKind::Network)
}

/// Polls a receive once. If it is ready, expects an error of the given kind.
fn look(connection: &mut dyn Connection, backend: &Backend, kind: ErrorKind) -> Outcome {
    connection.set_deadline(Some(backend.clock.now()));
    let received = connection.recv().now_or_never();
    connection.set_deadline(None);
    match received {
        None => Ok(()),
        Some(Err(error)) => expect(&error, kind, Stage::Hello),
        Some(Ok(message)) => Err(format!("{message:?} was never sent")),
    }
}

pub(super) async fn a_receive_may_move_to_another_thread(backend: Backend, run: Run) -> Outcome {
    // The peer answers only after both threads have polled the future that receives the echo.
    let (polled, moved) = mpsc::channel::<()>();
    let script = move |stream: &mut TcpStream| {
        // Waits until the sender is dropped.
        let _ = moved.recv();
        echo(stream)
    };
    let (peer, mut connection) = meet(script, &backend, &run).await?;
    let own = run.clone();
    let mut conversation = Box::pin(async move { exchange(&mut *connection, 1, 0, &own).await });
    run.step("polling an exchange of messages for the first time");
    if let Some(outcome) = conversation.as_mut().now_or_never() {
        return outcome.and_then(|()| Err("an echo arrived before it was sent".into()));
    }
    let moved = run.on_own_thread(move || {
        if let Some(outcome) = conversation.as_mut().now_or_never() {
            return outcome;
        }
        drop(polled);
        block_on(conversation)
    });
    moved.await??;
    peer.sees_the_end(&run).await.map(drop)
}

/// Sends a message with `padding` bytes of text, and expects its echo.
pub(super) async fn exchange(
    connection: &mut dyn Connection,
    request_id: i32,
    padding: usize,
    run: &Run,
) -> Outcome {
    let request = message(request_id, padding)?;
    run.step("sending a message");
    send(connection, request.clone()).await?;
    run.step("receiving the echo of a message");
    let reply = connection.recv().await.map_err(|error| format!("{error:#}"))?;
    ensure!(
        reply.response_to() == request_id && reply.body() == request.body(),
        "the reply to {request_id} is not its echo, but a reply to {}",
        reply.response_to()
    );
    Ok(())
}

/// Starts a peer that runs `script`, and connects to it.
async fn meet<T: Send + 'static>(
    script: impl FnOnce(&mut TcpStream) -> io::Result<T> + Send + 'static,
    backend: &Backend,
    run: &Run,
) -> Result<(Peer<T>, Box<dyn Connection>), String> {
    let peer = Peer::start(script)?;
    let connection = open(backend, &peer.address, run).await?;
    Ok((peer, connection))
}

pub(super) async fn send(connection: &mut dyn Connection, message: WireMessage) -> Outcome {
    connection.send(message).await.map_err(|error| format!("{error:#}"))
}

/// Checks that receiving invalid bytes fails with an error of the given kind.
async fn no_message(connection: &mut dyn Connection, kind: ErrorKind) -> Outcome {
    match connection.recv().await {
        Ok(message) => Err(format!("a message of {} bytes is accepted", message.as_bytes().len())),
        Err(error) => {
            unusable(connection).await?;
            expect(&error, kind, Stage::Hello)
        }
    }
}

/// Checks that every further call on the connection fails.
async fn unusable(connection: &mut dyn Connection) -> Outcome {
    let sent = connection.send(message(9, 0)?).await;
    ensure!(sent.is_err(), "a send succeeded after the connection had failed");
    let received = connection.recv().await;
    ensure!(received.is_err(), "a receive succeeded after the connection had failed");
    Ok(())
}

pub(super) fn message(request_id: i32, padding: usize) -> Result<WireMessage, String> {
    let mut body = DocumentWriter::new();
    body.text("padding", "x".repeat(padding).as_str());
    let message = OpMsg { request_id, body: &body.finish(), ..OpMsg::default() };
    message.encode().map_err(|error| format!("{error:#}"))
}

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
