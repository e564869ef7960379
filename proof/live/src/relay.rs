//! A TCP relay that can stop forwarding.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::error::Error;

/// A relay on its own loopback port.
///
/// While it is on hold, it forwards nothing and closes nothing, like a firewall that drops packets.
/// It accepts connections, and keeps all bytes that arrive on new and old connections.
/// [`Relay::release`] forwards these bytes, as if their sender retransmitted them.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    gate: Arc<Gate>,
}

impl Relay {
    /// Starts a relay that forwards connections to the address `to`.
    pub(crate) fn start(to: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.map_err(Error::io("binding a relay"))?;
        let address = listener.local_addr().map_err(Error::io("binding a relay"))?;
        let gate = Arc::new(Gate::default());
        let passed = Arc::clone(&gate);
        thread::spawn(move || {
            for client in listener.incoming() {
                if passed.is_closed() {
                    return;
                }
                let gate = Arc::clone(&passed);
                // A connection that cannot be relayed is closed, just like a connection to a dead
                // server.
                thread::spawn(move || client.and_then(|client| relay(client, to, &gate)));
            }
        });
        Ok(Self { address, gate })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops forwarding until [`release`](Self::release) is called.
    pub(crate) fn hold(&self) {
        self.gate.set(State::Holding);
    }

    /// Resumes forwarding, beginning with the bytes that arrived in the meantime.
    pub(crate) fn release(&self) {
        self.gate.set(State::Forwarding);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.gate.set(State::Closed);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Forwarding,
    Holding,
    Closed,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) == State::Closed
    }

    fn pass(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_holding = |state: &mut State| *state == State::Holding;
        drop(self.changed.wait_while(state, is_holding));
    }
}

/// Forwards the bytes of both directions until both have ended.
fn relay(client: TcpStream, to: SocketAddr, gate: &Arc<Gate>) -> io::Result<()> {
    gate.pass();
    let server = TcpStream::connect(to)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from, into) = (client.try_clone()?, server.try_clone()?);
    let requests = Arc::clone(gate);
    thread::spawn(move || forward(from, into, &requests));
    forward(server, client, gate);
    Ok(())
}

fn forward(mut from: TcpStream, mut into: TcpStream, gate: &Gate) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).unwrap_or_default();
        gate.pass();
        if length == 0 || into.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // Errors are ignored, because either socket may already be closed.
    let _ = into.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
