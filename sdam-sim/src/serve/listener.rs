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

/// A bound port and the thread that accepts connections on it.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    /// Relaxed accesses suffice, because no data is published through the flag.
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
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
                        return;
                    }
                    // A connection that failed before it was accepted is ignored.
                    if let Ok(stream) = stream
                        && events.send(Event::Accepted(id, stream)).is_err()
                    {
                        return;
                    }
                }
            })?;
        Ok(Self { address, stop, thread })
    }

    /// Stops accepting connections.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // This connection unblocks the thread. If it cannot be opened, the listener is broken, and
        // joining the thread could block forever.
        if TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok() {
            let _ = self.thread.join();
        }
    }
}
