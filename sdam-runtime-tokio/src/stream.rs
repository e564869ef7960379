//! Implements the I/O traits of `futures` for tokio's streams.

use std::{
    fmt::Debug,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_transport::stream::ByteStream;
use tokio::io::ReadBuf;

/// A tokio stream with the I/O traits of `futures`: a [`ByteStream`].
///
/// Meant for programs that open or accept a socket themselves, and then relay it or pass it to a
/// transport's layers. The runtime's context is needed only to open a socket; an open one works
/// everywhere.
#[derive(Debug)]
pub struct TokioStream<S>(pub S);

impl<S> ByteStream for TokioStream<S> where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + Debug + 'static
{
}

impl<S: tokio::io::AsyncRead + Unpin> AsyncRead for TokioStream<S> {
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

impl<S: tokio::io::AsyncWrite + Unpin> AsyncWrite for TokioStream<S> {
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
