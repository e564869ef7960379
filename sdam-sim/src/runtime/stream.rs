//! The program's end of a simulated connection.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_transport::{
    rare::{Point, defers, rarely},
    stream::ByteStream,
};

use super::{Shared, socket::End};

/// A byte stream. Dropping it closes the connection.
pub(super) struct SimStream {
    shared: Arc<Shared>,
    socket: u64,
}

impl SimStream {
    pub(super) fn new(shared: Arc<Shared>, socket: u64) -> Self {
        Self { shared, socket }
    }
}

impl ByteStream for SimStream {}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if defers(Point::EmptyWake, cx) {
            return Poll::Pending;
        }
        let mut state = self.shared.state();
        let Some(socket) = state.network.sockets.get_mut(&self.socket) else {
            return Poll::Ready(Ok(0));
        };
        if socket.end == Some(End::Reset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !socket.inbox.is_empty() {
            return Poll::Ready(io::Read::read(&mut socket.inbox, buffer));
        }
        if socket.end == Some(End::Closed) {
            return Poll::Ready(Ok(0));
        }
        socket.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if defers(Point::LateWrite, cx) {
            return Poll::Pending;
        }
        let bytes = match bytes.len().div_ceil(2) {
            half if rarely(Point::PartialWrite) => bytes.split_at(half).0,
            _ => bytes,
        };
        let is_open = self.shared.change(|state| state.send(self.socket, bytes));
        Poll::Ready(if is_open { Ok(bytes.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.state().close_socket(self.socket);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.shared.state().close_socket(self.socket);
    }
}

sdam_core::opaque!(SimStream, |this| link: this.socket);
