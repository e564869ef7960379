//! What a transport and its connections promise.

use std::{io::Write, net::Shutdown, time::Duration};

use futures::{FutureExt as _, executor::block_on};
use sdam_core::{
    address::ServerAddress,
    app_error::Phase,
    error::{ErrorKind, SYSTEM_OVERLOADED_ERROR, Stage},
    time::Instant,
};

use super::{
    Outcome, elsewhere, ensure,
    peer::{Blackhole, Peer, echo, listen, wait_for_close},
};
use crate::{
    connect::Connection,
    error::TransportError,
    race,
    runtime::Io,
    wire::{OpMsg, WireMessage},
};

pub(super) async fn messages_travel_both_ways(io: Io) -> Outcome {
    let peer = Peer::start(echo)?;
    let mut connection = open(&io, &peer.address).await?;
    for request_id in 1..=3 {
        exchange(&mut *connection, request_id, 100).await?;
    }
    drop(connection);
    let echoed = peer.finish()?;
    ensure!(echoed == 3, "the peer got {echoed} of 3 messages");
    Ok(())
}

pub(super) async fn long_messages_travel_whole(io: Io) -> Outcome {
    let peer = Peer::start(echo)?;
    let mut connection = open(&io, &peer.address).await?;
    // The longest document there is, with room for what a reply wraps around it.
    exchange(&mut *connection, 1, (16 << 20) + (16 << 10)).await
}

pub(super) async fn the_limit_of_a_message_can_be_set(io: Io) -> Outcome {
    let peer = Peer::start(echo)?;
    let mut connection = open(&io, &peer.address).await?;
    connection.set_max_message_size(1000);
    exchange(&mut *connection, 1, 100).await?;
    connection.set_max_message_size(100);
    let sent = connection.send(message(2, 100)?).await;
    sent.map_err(|error| describe(&error))?;
    let error = no_message(&mut *connection).await?;
    expect(&error, ErrorKind::Protocol, Stage::Hello)
}

pub(super) async fn host_names_are_looked_up_and_all_families_tried(io: Io) -> Outcome {
    // Nobody listens on ::1, which is the first address of localhost on many machines.
    let peer = Peer::start(echo)?;
    let port = peer.address.port().unwrap_or_default();
    let mut connection = open(&io, &ServerAddress::new("localhost", port)).await?;
    exchange(&mut *connection, 1, 0).await
}

pub(super) async fn a_host_name_that_cannot_be_fails_at_stage_dns(io: Io) -> Outcome {
    // A label of more than 63 bytes: resolvers refuse it without asking anybody.
    let target = ServerAddress::new(&"a".repeat(300), 27017);
    let error = refused(&io, &target, io.clock.now() + PATIENCE).await?;
    expect(&error, ErrorKind::Network, Stage::Dns)
}

pub(super) async fn a_refused_connect_is_a_network_error(io: Io) -> Outcome {
    let (listener, address) = listen()?;
    drop(listener);
    let error = refused(&io, &address, io.clock.now() + PATIENCE).await?;
    expect(&error, ErrorKind::Network, Stage::Connect)
}

pub(super) async fn a_connect_without_answer_times_out(io: Io) -> Outcome {
    let Some(blackhole) = Blackhole::start()? else {
        return Ok(());
    };
    let deadline = io.clock.now() + Duration::from_millis(50);
    let error = refused(&io, &blackhole.address, deadline).await?;
    ensure!(
        io.clock.now() >= deadline,
        "it timed out early: {}",
        describe(&error)
    );
    expect(&error, ErrorKind::Timeout, Stage::Connect)
}

pub(super) async fn a_closed_connection_is_a_network_error(io: Io) -> Outcome {
    let peer = Peer::start(|stream| stream.shutdown(Shutdown::Both))?;
    let mut connection = open(&io, &peer.address).await?;
    peer.finish()?;
    let error = no_message(&mut *connection).await?;
    expect(&error, ErrorKind::Network, Stage::Hello)
}

pub(super) async fn a_reset_connection_is_a_network_error(io: Io) -> Outcome {
    // A socket that is closed before what arrived was read is reset.
    let peer = Peer::start(|stream| stream.peek(&mut [0]))?;
    let mut connection = open(&io, &peer.address).await?;
    connection
        .send(message(1, 0)?)
        .await
        .map_err(|error| describe(&error))?;
    peer.finish()?;
    let error = no_message(&mut *connection).await?;
    expect(&error, ErrorKind::Network, Stage::Hello)
}

pub(super) async fn half_a_message_is_a_network_error(io: Io) -> Outcome {
    for part in [7, 20] {
        let whole = message(1, 0)?.into_bytes();
        let peer = Peer::start(move |stream| stream.write_all(&whole[..part]))?;
        let mut connection = open(&io, &peer.address).await?;
        peer.finish()?;
        let error = no_message(&mut *connection).await?;
        expect(&error, ErrorKind::Network, Stage::Hello)?;
    }
    Ok(())
}

pub(super) async fn an_oversized_message_is_refused_by_its_header(io: Io) -> Outcome {
    let mut header = message(1, 0)?.into_bytes();
    header.truncate(16);
    header[..4].copy_from_slice(&i32::MAX.to_le_bytes());
    // The peer sends no more than the header, so nothing but its length can end the wait.
    let peer = Peer::start(move |stream| {
        stream.write_all(&header)?;
        wait_for_close(stream)
    })?;
    let mut connection = open(&io, &peer.address).await?;
    let error = no_message(&mut *connection).await?;
    drop(connection);
    peer.finish()?;
    expect(&error, ErrorKind::Protocol, Stage::Hello)
}

pub(super) async fn silence_ends_at_the_deadline(io: Io) -> Outcome {
    let peer = Peer::start(wait_for_close)?;
    let mut connection = open(&io, &peer.address).await?;
    let deadline = io.clock.now() + Duration::from_millis(50);
    connection.set_deadline(Some(deadline));
    // A blocking connection knows the deadline, any other one is dropped when it has passed.
    match race::deadline(&*io.clock, Some(deadline), connection.recv()).await {
        Ok(Ok(message)) => return Err(format!("nobody sent {message:?}")),
        Ok(Err(error)) => expect(&error, ErrorKind::Timeout, Stage::Hello)?,
        Err(_) => {}
    }
    ensure!(io.clock.now() >= deadline, "it timed out early");
    connection.set_deadline(None);
    unusable(&mut *connection).await?;
    drop(connection);
    peer.finish()
}

pub(super) async fn a_dropped_connection_is_closed_at_once(io: Io) -> Outcome {
    let peer = Peer::start(wait_for_close)?;
    let connection = open(&io, &peer.address).await?;
    drop(connection);
    peer.finish()
}

pub(super) async fn a_dropped_receive_makes_the_connection_unusable(io: Io) -> Outcome {
    let peer = Peer::start(wait_for_close)?;
    let mut connection = open(&io, &peer.address).await?;
    ensure!(
        connection.recv().now_or_never().is_none(),
        "nobody sent anything"
    );
    unusable(&mut *connection).await?;
    drop(connection);
    peer.finish()
}

pub(super) async fn a_dropped_connect_is_abandoned(io: Io) -> Outcome {
    let (listener, address) = listen()?;
    // Depending on the system, the connect is done by now or not; neither may panic or hang.
    drop(io.transport.connect(&address, None).now_or_never());
    drop(io.transport.connect(&address, None));
    drop(listener);
    Ok(())
}

pub(super) async fn a_receive_may_move_to_another_thread(io: Io) -> Outcome {
    let peer = Peer::start(echo)?;
    let mut connection = open(&io, &peer.address).await?;
    let mut conversation = Box::pin(async move { exchange(&mut *connection, 1, 0).await });
    match conversation.as_mut().now_or_never() {
        Some(outcome) => outcome?,
        None => elsewhere(move || block_on(conversation)).await??,
    }
    peer.finish().map(drop)
}

#[cfg(not(unix))]
pub(super) async fn unix_sockets_work_where_they_exist(_: Io) -> Outcome {
    Ok(())
}

#[cfg(unix)]
pub(super) async fn unix_sockets_work_where_they_exist(io: Io) -> Outcome {
    use std::{env, fs, os::unix::net::UnixListener, process};

    let name = format!("sdam-{}-{:x}.sock", process::id(), crate::system::entropy());
    let path = env::temp_dir().join(name);
    let address = ServerAddress::unix(&path.to_string_lossy());
    let error = refused(&io, &address, io.clock.now() + PATIENCE).await?;
    expect(&error, ErrorKind::Network, Stage::Connect)?;

    let listener = UnixListener::bind(&path).map_err(|error| error.to_string())?;
    let peer = Peer::run(address, move || echo(&mut listener.accept()?.0));
    let outcome = async {
        let mut connection = open(&io, &peer.address).await?;
        exchange(&mut *connection, 1, 100).await
    };
    let outcome = outcome.await;
    fs::remove_file(&path).map_err(|error| error.to_string())?;
    outcome?;
    peer.finish().map(drop)
}

/// A connection to `address`, which is there.
pub(super) async fn open(io: &Io, address: &ServerAddress) -> Result<Box<dyn Connection>, String> {
    let deadline = Some(io.clock.now() + PATIENCE);
    let connected = io.transport.connect(address, deadline).await;
    let mut connection = connected.map_err(|error| describe(&error))?;
    connection.set_deadline(deadline);
    Ok(connection)
}

/// The error of connecting to `address`, which is not there.
async fn refused(
    io: &Io,
    address: &ServerAddress,
    deadline: Instant,
) -> Result<TransportError, String> {
    match io.transport.connect(address, Some(deadline)).await {
        Ok(_) => Err(format!("there is a connection to {address}")),
        Err(error) => Ok(error),
    }
}

/// Sends a message whose body has `padding` bytes more than the least, and expects its echo.
pub(super) async fn exchange(
    connection: &mut dyn Connection,
    request_id: i32,
    padding: usize,
) -> Outcome {
    let request = message(request_id, padding)?;
    let sent = connection.send(request.clone()).await;
    sent.map_err(|error| describe(&error))?;
    let reply = connection.recv().await.map_err(|error| describe(&error))?;
    ensure!(
        reply.response_to() == request_id && reply.body() == request.body(),
        "the reply to {request_id} is not its echo, but answers {}",
        reply.response_to()
    );
    Ok(())
}

/// The error of receiving what is no message.
async fn no_message(connection: &mut dyn Connection) -> Result<TransportError, String> {
    match connection.recv().await {
        Ok(message) => Err(format!("nobody sent {message:?}")),
        Err(error) => {
            unusable(connection).await?;
            Ok(error)
        }
    }
}

/// Checks that the connection refuses whatever is asked of it.
async fn unusable(connection: &mut dyn Connection) -> Outcome {
    let sent = connection.send(message(9, 0)?).await;
    ensure!(sent.is_err(), "it can be written after it failed");
    let received = connection.recv().await;
    ensure!(received.is_err(), "it can be read after it failed");
    Ok(())
}

/// Checks what the error says, and what a pool that was opening a connection would report.
fn expect(error: &TransportError, kind: ErrorKind, stage: Stage) -> Outcome {
    ensure!(
        error.kind() == kind && error.stage() == stage,
        "{kind:?} at {stage:?} was due, not: {error}"
    );
    let overload = kind != ErrorKind::Protocol && stage != Stage::Dns;
    let labels = error.cause(Phase::BeforeHello).labels();
    ensure!(
        labels.contains(&SYSTEM_OVERLOADED_ERROR) == overload,
        "the labels {labels:?} are wrong for: {error}"
    );
    Ok(())
}

fn describe(error: &TransportError) -> String {
    error.to_string()
}

fn message(request_id: i32, padding: usize) -> Result<WireMessage, String> {
    let length = padding + 5;
    let mut body = (length as i32).to_le_bytes().to_vec();
    body.resize(length - 1, 1);
    body.push(0);
    let message = OpMsg {
        request_id,
        body: &body,
        ..OpMsg::default()
    };
    message.encode().map_err(|error| error.to_string())
}

/// How long what works may take; far more than it needs.
const PATIENCE: Duration = Duration::from_secs(30);
