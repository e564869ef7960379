//! Byte streams whose socket is on another thread.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{
    Sink as _, TryStreamExt as _,
    channel::mpsc,
    io::{AsyncRead, AsyncWrite},
    stream::IntoAsyncRead,
};

use crate::stream::ByteStream;

#[cfg(test)]
mod tests;

/// A [`ByteStream`] over two channels. It is meant for sockets that cannot be moved between
/// threads, or that are read by their own thread.
///
/// Dropping the stream ends [`PipeEnd::to_send`]; the other side must then close the socket.
pub struct Piped {
    arrived: IntoAsyncRead<mpsc::Receiver<io::Result<Vec<u8>>>>,
    to_send: mpsc::Sender<Vec<u8>>,
}

/// The end of a [`Piped`] that stays on the socket's thread.
///
/// Each channel holds one item, so the socket is read no faster than the stream, and the stream is
/// written no faster than the socket. The socket must be closed as soon as `to_send` ends, even if
/// a read is pending: race the read loop against the write loop, and drop both when one ends.
#[derive(Debug)]
pub struct PipeEnd {
    /// Takes the bytes that the socket has received. The stream reports an error once, and ends
    /// when the sender is dropped.
    pub arrived: mpsc::Sender<io::Result<Vec<u8>>>,
    /// Yields the bytes to send, and ends when the [`Piped`] is dropped. Dropping the receiver
    /// makes writes fail.
    pub to_send: mpsc::Receiver<Vec<u8>>,
}

/// Returns a stream, and the end to use on the socket's thread.
pub fn piped() -> (Piped, PipeEnd) {
    let (from_socket, received) = mpsc::channel(0);
    let (sent, to_socket) = mpsc::channel(0);
    let stream = Piped { arrived: received.into_async_read(), to_send: sent };
    let end = PipeEnd { arrived: from_socket, to_send: to_socket };
    (stream, end)
}

impl ByteStream for Piped {}

impl AsyncRead for Piped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.arrived).poll_read(cx, space)
    }
}

impl AsyncWrite for Piped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.to_send.poll_ready(cx)).map_err(broken)?;
        let chunk = bytes.get(..MAX_CHUNK).unwrap_or(bytes);
        self.to_send.start_send(chunk.to_vec()).map_err(broken)?;
        Poll::Ready(Ok(chunk.len()))
    }

    /// Waits until the thread of the socket has taken the bytes that were written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.to_send.poll_ready(cx).map_err(broken)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to_send).poll_close(cx).map_err(broken)
    }
}

sdam_core::opaque!(Piped);

fn broken(_: mpsc::SendError) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the socket is closed")
}

/// The maximum length of a chunk. It limits the memory that is needed to copy a long message.
const MAX_CHUNK: usize = 64 << 10;
