//! Peers for the connections under test. Each peer is a thread with a socket.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use futures::channel::oneshot;
use sdam_core::address::ServerAddress;
#[cfg(any(target_os = "android", target_os = "linux"))]
use socket2::{SockFilter, SockRef};

use super::Run;
use sdam_transport::wire::{Header, OpMsg, WireError, WireMessage};

/// A thread that accepts one connection.
pub(super) struct Peer<T> {
    pub(super) address: ServerAddress,
    outcome: oneshot::Receiver<io::Result<T>>,
}

impl<T: Send + 'static> Peer<T> {
    /// Listens on a port of 127.0.0.1 and runs `script` on the first connection.
    pub(super) fn start(
        script: impl FnOnce(&mut TcpStream) -> io::Result<T> + Send + 'static,
    ) -> Result<Self, String> {
        let (listener, address) = listen()?;
        Ok(Self::run(address, move || {
            let (mut stream, _) = listener.accept()?;
            // If the client never sends anything, the timeout ends this thread.
            stream.set_read_timeout(Some(READ_TIMEOUT))?;
            script(&mut stream)
        }))
    }

    /// Runs `script`, which serves a connection to `address`.
    pub(super) fn run(
        address: ServerAddress,
        script: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Self {
        let (done, outcome) = oneshot::channel();
        thread::spawn(move || {
            // The receiver is dropped if the check has failed.
            let _ = done.send(script());
        });
        Self { address, outcome }
    }

    /// Waits until the script has seen that the connection is closed, and returns the script's
    /// result.
    pub(super) async fn sees_the_end(self, run: &Run) -> Result<T, String> {
        run.step("waiting for the peer to see that the connection is closed");
        self.finish(run).await
    }

    /// Returns the result of the script.
    pub(super) async fn finish(self, run: &Run) -> Result<T, String> {
        let outcome = run.wait(self.outcome).await;
        let outcome = outcome.ok_or("the peer has panicked")?;
        outcome.map_err(|error| reason(&error))
    }
}

/// Describes the error that ended a script.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        // Systems use different kinds for a read timeout.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the connection is still open and silent after {READ_TIMEOUT:?}")
        }
        _ => format!("the peer failed: {error}"),
    }
}

/// A port that ignores connection attempts because its backlog is full.
pub(super) struct Blackhole {
    pub(super) address: ServerAddress,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Blackhole {
    /// Opens a port and fills its backlog. Returns `None` if the system refuses connections instead
    /// of ignoring them, or if the backlog is unlimited.
    pub(super) fn start() -> Result<Option<Self>, String> {
        let (listener, address) = listen()?;
        let target = listener.local_addr().map_err(|error| error.to_string())?;
        let mut queue = Vec::new();
        while queue.len() < 512 {
            match TcpStream::connect_timeout(&target, Duration::from_millis(250)) {
                Ok(stream) => queue.push(stream),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Ok(Some(Self { address, _listener: listener, _queue: queue }));
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Makes `peer` discard all incoming data without acknowledging it, like a host that has lost
/// power. Returns false if the system does not support this.
pub(crate) fn vanish(peer: &TcpStream) -> io::Result<bool> {
    #[cfg(any(target_os = "android", target_os = "linux"))]
    {
        // The filter's only instruction returns 0, so the system discards every packet completely.
        let nothing = SockFilter::new(0x06, 0, 0, 0);
        SockRef::from(peer).attach_filter(&[nothing])?;
        Ok(true)
    }
    #[cfg(not(any(target_os = "android", target_os = "linux")))]
    {
        let _ = peer;
        Ok(false)
    }
}

/// A port of 127.0.0.1 that refuses connection attempts.
///
/// The port belongs to an accepted connection whose listener is closed. The system therefore
/// assigns it neither to another listener nor to a connecting socket, which would then connect to
/// itself.
pub(super) struct Refusing {
    pub(super) address: ServerAddress,
    _connection: [TcpStream; 2],
}

impl Refusing {
    pub(super) fn start() -> Result<Self, String> {
        let (listener, address) = listen()?;
        let connect = || {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let (server, _) = listener.accept()?;
            io::Result::Ok([client, server])
        };
        Ok(Self {
            address,
            _connection: connect().map_err(|error| format!("no connection: {error}"))?,
        })
    }
}

/// Opens a listener on a system-assigned port of 127.0.0.1.
pub(super) fn listen() -> Result<(TcpListener, ServerAddress), String> {
    let bind = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = address_of(listener.local_addr()?);
        io::Result::Ok((listener, address))
    };
    bind().map_err(|error| format!("listening failed: {error}"))
}

pub(super) fn address_of(address: SocketAddr) -> ServerAddress {
    ServerAddress::new(&address.ip().to_string(), address.port())
}

/// Echoes messages until the client closes the connection, and returns the number of messages.
pub(super) fn echo(stream: &mut (impl Read + Write)) -> io::Result<usize> {
    let mut echoed = 0;
    while let Some(request) = read_message(stream)? {
        let reply = OpMsg {
            request_id: request.request_id().wrapping_add(1000),
            response_to: request.request_id(),
            body: request.body(),
            ..OpMsg::default()
        };
        stream.write_all(reply.encode().map_err(invalid)?.as_bytes())?;
        echoed += 1;
    }
    Ok(echoed)
}

/// Reads until the client closes the connection.
pub(super) fn wait_for_close(stream: &mut impl Read) -> io::Result<()> {
    let mut bytes = [0; 1024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the next message, or `None` if the client closed the connection.
pub(super) fn read_message(stream: &mut impl Read) -> io::Result<Option<WireMessage>> {
    let mut header = [0; Header::LENGTH];
    if stream.read(&mut header[..1])? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut header[1..])?;
    let length = Header::decode(&header).map_err(invalid)?.message_length();
    let mut bytes = header.to_vec();
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[Header::LENGTH..])?;
    WireMessage::decode(bytes).map(Some).map_err(invalid)
}

fn invalid(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The read timeout of a peer. No client needs nearly that long, and the timeout is shorter than
/// the limit of a step, so that the peer can still report what is missing.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_timed_out_says_that_the_connection_is_open() {
        let read = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let _client = TcpStream::connect(listener.local_addr()?)?;
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(Duration::from_millis(1)))?;
            wait_for_close(&mut stream)
        };
        let text = reason(&read().unwrap_err());
        assert_eq!(text, "the connection is still open and silent after 15s");
    }

    /// A connection whose reads fail.
    struct Failing(io::ErrorKind);

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_connection_that_is_reset_is_closed() {
        assert!(wait_for_close(&mut Failing(io::ErrorKind::ConnectionReset)).is_ok());
        assert!(wait_for_close(&mut Failing(io::ErrorKind::TimedOut)).is_err());
    }
}
