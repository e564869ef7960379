//! Bytes on their way from one stream to another.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncWrite};
use tokio::{
    io::{AsyncRead as _, AsyncWrite as _, ReadBuf},
    net::TcpStream,
};

/// The size of a buffer: several common messages, or a part of a long one.
const CAPACITY: usize = 32 << 10;

/// The buffer of one direction. A later read waits until what was read is written.
#[derive(Debug)]
pub(super) struct Pipe {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    unflushed: bool,
}

impl Pipe {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; CAPACITY].into(),
            start: 0,
            end: 0,
            unflushed: false,
        }
    }

    /// Returns whether everything that was read is written.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads once, behind what is there; pending for ever if the buffer is full. Returns the number
    /// of bytes, 0 at the end.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<usize>> {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        let space = self.buffer.get_mut(self.end..).unwrap_or_default();
        if space.is_empty() {
            return Poll::Pending;
        }
        let read = ready!(Pin::new(reader).poll_read(cx, space))?;
        self.end += read;
        Poll::Ready(Ok(read))
    }

    /// Writes once.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        let written = ready!(Pin::new(writer).poll_write(cx, bytes))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.start += written;
        self.unflushed = true;
        Poll::Ready(Ok(()))
    }

    /// Flushes what was written, which a stream with TLS may hold back.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// The socket of a client, with the I/O traits of the other side.
#[derive(Debug)]
pub(super) struct Client(pub(super) TcpStream);

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut space = ReadBuf::new(space);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut space))?;
        Poll::Ready(Ok(space.filled().len()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
