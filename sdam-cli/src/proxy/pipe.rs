//! Bytes in transit from one stream to another.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_runtime_tokio::TokioStream;
use tokio::net::TcpStream;

/// The size of a buffer, which holds several typical messages or a part of a long one.
const CAPACITY: usize = 32 << 10;

/// The buffer for one direction. Once it is full, more is read only after everything in it has been
/// written.
#[derive(Debug)]
pub(super) struct Pipe {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    unflushed: bool,
}

impl Pipe {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; CAPACITY].into(), start: 0, end: 0, unflushed: false }
    }

    /// Returns whether everything read so far has been written.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the bytes that have not been written yet.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Replaces the bytes that have not been written yet.
    pub(super) fn replace(&mut self, bytes: &[u8]) {
        (self.start, self.end) = (0, bytes.len());
        match self.buffer.get_mut(..bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.buffer = bytes.into(),
        }
    }

    /// Reads once, and appends the bytes to the buffer. Stays pending while the buffer is full.
    /// Returns the number of bytes, which is 0 at the end of the stream.
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

    /// Writes as many bytes of the buffer as the stream accepts at once.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let written = ready!(Pin::new(writer).poll_write(cx, self.bytes()))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.start += written;
        self.unflushed = true;
        Poll::Ready(Ok(()))
    }

    /// Flushes the stream, because a TLS stream may hold written bytes back.
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

/// The socket of a client, wrapped so that it has the same I/O traits as the stream to a member.
pub(super) type Client = TokioStream<TcpStream>;
