//! The program's end of a simulated connection.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_transport::stream::ByteStream;

use super::{Shared, disturbance::Disturbance, socket::End};

/// A byte stream. Dropping it closes the connection.
pub(super) struct SimStream {
    shared: Arc<Shared>,
    socket: u64,
}

impl SimStream {
    pub(super) fn new(shared: Arc<Shared>, socket: u64) -> Self {
        Self { shared, socket }
    }

    /// Returns whether the socket is not ready for once. If so, wakes the task.
    fn is_busy(&self, cx: &Context<'_>) -> bool {
        let is_busy = self.shared.state().disturbances.occurs(Disturbance::BusySocket);
        if is_busy {
            cx.waker().wake_by_ref();
        }
        is_busy
    }
}

impl ByteStream for SimStream {}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_busy(cx) {
            return Poll::Pending;
        }
        let state = &mut *self.shared.state();
        let Some(socket) = state.network.sockets.get_mut(&self.socket) else {
            return Poll::Ready(Ok(0));
        };
        if socket.end == Some(End::Reset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !socket.inbox.is_empty() {
            let length = state.disturbances.read(buffer.len().min(socket.inbox.len()));
            return Poll::Ready(io::Read::read(&mut socket.inbox, &mut buffer[..length]));
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
        if self.is_busy(cx) {
            return Poll::Pending;
        }
        let written = self.shared.change(|state| {
            let length = state.disturbances.write(bytes.len());
            state.send(self.socket, &bytes[..length]).then_some(length)
        });
        Poll::Ready(written.ok_or(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_busy(cx) {
            return Poll::Pending;
        }
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
