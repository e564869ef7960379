//! The byte stream trait.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{
    future::Either,
    io::{AsyncRead, AsyncWrite},
};
use sdam_core::time::Instant;

/// A socket, or another bidirectional byte stream.
///
/// # Contract
///
/// - The caller holds no lock, and may poll by any executor on any thread.
/// - A stream that blocks instead of returning `Pending` supports timeouts by `set_deadline`: a
///   read or write past the deadline fails with [`TimedOut`](std::io::ErrorKind::TimedOut).
/// - Dropping the stream closes its socket, immediately or as soon as the runtime runs.
///
/// The conformance suite checks a stream by checking that its connection keeps the contract of
/// [`Connection`](crate::connect::Connection). If a socket cannot leave its thread,
/// [`pipe`](crate::pipe) turns it into a stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug + 'static {
    /// Sets the deadline of every later read and write. Streams that never block may ignore the
    /// deadline.
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        let _ = deadline;
    }
}

impl<A: ByteStream, B: ByteStream> ByteStream for Either<A, B> {
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        match self {
            Self::Left(stream) => stream.set_deadline(deadline),
            Self::Right(stream) => stream.set_deadline(deadline),
        }
    }
}

impl ByteStream for Box<dyn ByteStream> {
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        (**self).set_deadline(deadline);
    }
}

/// Turns a stream that never blocks into a [`ByteStream`], which ignores deadlines.
#[derive(Debug)]
pub struct NonBlocking<S>(pub S);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug + 'static> ByteStream
    for NonBlocking<S>
{
}

impl<S: AsyncRead + Unpin> AsyncRead for NonBlocking<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, space)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for NonBlocking<S> {
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
        Pin::new(&mut self.0).poll_close(cx)
    }
}
