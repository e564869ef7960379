//! Sockets that block at most until a deadline.

use std::{
    fmt::Debug,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_core::time::Instant;
use sdam_transport::{stream::ByteStream, system::Epoch};

/// A stream whose reads and writes block, so that every poll is ready.
#[derive(Debug)]
pub(crate) struct BlockingStream {
    socket: Box<dyn Socket>,
    epoch: Epoch,
    deadline: Option<Instant>,
}

impl BlockingStream {
    pub(crate) fn new(socket: impl Socket, epoch: Epoch) -> Self {
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
pub(crate) trait Socket: Read + Write + Send + Debug + 'static {
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
