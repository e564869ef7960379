//! Checks the order of heartbeat events relative to what the server observes.

use std::{
    io::Read,
    net::TcpListener,
    sync::{Arc, mpsc},
    thread,
};

use sdam::{Clock, EventKind, runtime::Instant};

use crate::{observer::Observer, runtime::Host};

/// An observation by the server, timed by the clock of the client's runtime.
#[derive(Clone, Copy, Debug)]
struct Seen {
    connected: Instant,
    greeted: Instant,
}

/// Reads a hello from each connection and closes the connection, until a client sends no hello or
/// the receiver is dropped.
fn serve(listener: &TcpListener, clock: &Arc<dyn Clock>, seen: &mpsc::Sender<Seen>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let connected = clock.now();
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut rest = vec![0; u32::from_le_bytes(length) as usize - length.len()];
        stream.read_exact(&mut rest).unwrap();
        let greeted = clock.now();
        drop(stream);
        if seen.send(Seen { connected, greeted }).is_err() {
            return;
        }
    }
}

/// J-10, J-30, F-6, F-50: the heartbeat has started before the server sees a connection, and fails
/// after the server has read the hello and dropped the connection.
#[test]
#[ignore = "deep: real servers"]
fn heartbeat_1_started_connected_hello_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let host = Host::start();
    let (clock, (sender, seen)) = (host.runtime.backend.clock.clone(), mpsc::channel());
    let server = thread::spawn(move || serve(&listener, &clock, &sender));
    let observer = Observer::start_on(
        host,
        &format!("mongodb://{address}/?directConnection=true&heartbeatFrequencyMS=60000"),
    );
    let ((), started) = observer.wait_for("a check to start", 0, |kind| {
        matches!(kind, EventKind::ServerHeartbeatStarted(_)).then_some(())
    });
    let (duration, failed) = observer.wait_for("the check to fail", started, |kind| match kind {
        EventKind::ServerHeartbeatFailed { duration, .. } => Some(*duration),
        _ => None,
    });
    let events = observer.events();
    let (started, failed) = (events[started - 1].at, events[failed - 1].at);
    let seen_first = seen.recv().unwrap();
    let Seen { connected, greeted } = seen_first;
    assert!(started <= connected, "{started:?} {connected:?}");
    assert!(connected <= greeted && greeted <= failed, "{greeted:?} {failed:?}");
    assert!(duration <= failed.since(started));
    observer.finish();
    // A connection that is closed without sending a hello makes the server stop.
    drop(std::net::TcpStream::connect(address).unwrap());
    server.join().unwrap();
}
