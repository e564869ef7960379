//! Blocking sockets for sdam's single-threaded mode.
//!
//! The futures of this crate are never pending, because each poll blocks its thread until the
//! operation is done or its deadline has passed. Any executor works, and no runtime is needed.
//! There is no spawner, because a blocking task would prevent its executor from running other
//! tasks. [`backend`] therefore returns a [`Backend`], which is sufficient for single-threaded mode
//! only.
//!
//! Two operations have no timeout: looking up a host name takes as long as the system's resolver
//! takes, and connecting to a Unix domain socket blocks while the server's backlog is full.
#![cfg_attr(docsrs, feature(doc_cfg))]

use std::{
    fmt::Debug,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread,
    time::Duration,
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_core::time::Instant;
use sdam_transport::{
    async_trait,
    clock::Clock,
    dial::{Dial, DialOptions, DialTarget},
    runtime::Backend,
    stream::ByteStream,
    system::{self, Epoch, SystemClock, tune_tcp},
};

/// Returns a backend that uses the system's blocking sockets and clock.
///
/// The random seed comes from the system's entropy.
pub fn backend() -> Backend {
    let epoch = Epoch::begin();
    Backend::of_sockets(BlockingDial { epoch }, clock(epoch), system::entropy())
}

/// Returns a clock whose timers block the thread.
fn clock(epoch: Epoch) -> Arc<dyn Clock> {
    let clock = SystemClock::new(epoch, |epoch, deadline| {
        Box::pin(async move {
            while epoch.now() < deadline {
                thread::sleep(epoch.until(deadline));
            }
        })
    });
    Arc::new(clock.blocking())
}

/// The dialer, which connects sockets and looks up host names.
#[derive(Debug)]
struct BlockingDial {
    epoch: Epoch,
}

impl BlockingDial {
    fn connect(&self, address: &SocketAddr, deadline: Option<Instant>) -> io::Result<TcpStream> {
        let Some(deadline) = deadline else {
            return TcpStream::connect(address);
        };
        let left = self.epoch.until(deadline);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        TcpStream::connect_timeout(address, left)
    }
}

#[async_trait]
impl Dial for BlockingDial {
    type Stream = BlockingStream;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<BlockingStream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = self.connect(address, options.deadline)?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(BlockingStream::new(stream, self.epoch))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                Ok(BlockingStream::new(stream, self.epoch))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok((host, 0).to_socket_addrs()?.collect())
    }

    fn blocks(&self) -> bool {
        true
    }
}

/// A stream whose reads and writes block, so that every poll is ready.
#[derive(Debug)]
struct BlockingStream {
    socket: Box<dyn Socket>,
    epoch: Epoch,
    deadline: Option<Instant>,
}

impl BlockingStream {
    fn new(socket: impl Socket, epoch: Epoch) -> Self {
        Self { socket: Box::new(socket), epoch, deadline: None }
    }

    /// Repeats `action`, to which it passes the remaining time, until `action` succeeds or the
    /// deadline has passed.
    fn by_deadline(
        &mut self,
        mut action: impl FnMut(&mut dyn Socket, Option<Duration>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // Even after the deadline, work that requires no waiting is still done. The timeout is
            // therefore never zero, which the system would take to mean "no timeout".
            let left = self.deadline.map(|deadline| self.epoch.until(deadline));
            let result = action(&mut *self.socket, left.map(|left| left.max(AT_ONCE)));
            let Err(error) = &result else {
                return Poll::Ready(result);
            };
            let now = self.epoch.now();
            let expired = self.deadline.is_some_and(|deadline| now >= deadline);
            match error.kind() {
                // On Unix, `TimedOut` means that TCP has given up on the peer.
                EXPIRED if expired => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                // The system's timer may fire one tick early.
                EXPIRED | io::ErrorKind::Interrupted => {}
                _ => return Poll::Ready(result),
            }
        }
    }
}

impl ByteStream for BlockingStream {
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

impl AsyncRead for BlockingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.by_deadline(|socket, left| {
            socket.set_read_timeout(left)?;
            socket.read(space)
        })
    }
}

impl AsyncWrite for BlockingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.by_deadline(|socket, left| {
            socket.set_write_timeout(left)?;
            socket.write(bytes)
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.flush())
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shut_down())
    }
}

/// Operations common to TCP and Unix domain sockets.
trait Socket: Read + Write + Send + Debug + 'static {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn shut_down(&self) -> io::Result<()>;
}

macro_rules! socket {
    ($socket:ty) => {
        impl Socket for $socket {
            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                Self::set_read_timeout(self, timeout)
            }

            fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                Self::set_write_timeout(self, timeout)
            }

            fn shut_down(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}

socket!(TcpStream);
#[cfg(unix)]
socket!(std::os::unix::net::UnixStream);

/// The error of a socket whose timeout has expired.
const EXPIRED: io::ErrorKind =
    if cfg!(windows) { io::ErrorKind::TimedOut } else { io::ErrorKind::WouldBlock };
/// The timeout of an operation that begins after the deadline. It is long enough only for work that
/// requires no waiting.
const AT_ONCE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    //! Runs the conformance suite with futures that are never pending.

    use sdam_testkit::conformance;
    use sdam_transport::system::Epoch;

    use super::{BlockingDial, backend, clock};

    #[test]
    fn io_keeps_its_contracts_and_is_never_pending() {
        conformance::blocking(&backend());
        let epoch = Epoch::begin();
        conformance::dial(BlockingDial { epoch }, clock(epoch));
    }
}
