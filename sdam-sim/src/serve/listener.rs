//! A listener thread that accepts connections until it is stopped.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::driver::{Event, ListenerId};

/// The time limit of connecting to a port of this process.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A bound port and the thread that accepts connections on it.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    /// Relaxed accesses suffice, because no data is published through the flag.
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<TcpListener>>,
}

/// A port that refuses clients and that the system does not assign again: a connection of this
/// process to its former listener. A new listener can bind the port meanwhile.
#[derive(Debug)]
pub(super) struct Reserved {
    _connection: [TcpStream; 2],
}

impl Listener {
    pub(super) fn start(
        id: ListenerId,
        listener: TcpListener,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread =
            thread::Builder::new().name(format!("accept {}", address.port())).spawn(move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    // A connection that failed before it was accepted is ignored.
                    if let Ok(stream) = stream
                        && events.send(Event::Accepted(id, stream)).is_err()
                    {
                        return None;
                    }
                }
                Some(listener)
            })?;
        Ok(Self { address, stop, thread })
    }

    /// Stops accepting connections. The port stays reserved while the result exists.
    pub(super) fn stop(self) -> Option<Reserved> {
        self.stop.store(true, Ordering::Relaxed);
        let connect = || TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT).ok();
        // This connection unblocks the thread. If it cannot be opened, the listener is broken, and
        // joining the thread could block forever.
        connect()?;
        let listener = self.thread.join().ok()??;
        let client = connect()?;
        let own = client.local_addr().ok()?;
        let mut accepted = listener.incoming().map_while(Result::ok);
        // Clients that came before are closed.
        let server = accepted.find(|stream| stream.peer_addr().is_ok_and(|peer| peer == own))?;
        Some(Reserved { _connection: [client, server] })
    }
}
