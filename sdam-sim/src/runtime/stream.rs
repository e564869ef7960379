//! The program's end of a simulated connection.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_transport::stream::ByteStream;

use super::{Shared, network::End};

/// A stream of bytes; dropping it closes the connection.
pub(super) struct SimStream {
    shared: Arc<Shared>,
    link: u64,
}

impl SimStream {
    pub(super) fn new(shared: Arc<Shared>, link: u64) -> Self {
        Self { shared, link }
    }
}

impl ByteStream for SimStream {}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut world = self.shared.world();
        let Some(link) = world.network.links.get_mut(&self.link) else {
            return Poll::Ready(Ok(0));
        };
        if link.end == Some(End::Reset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !link.inbox.is_empty() {
            return Poll::Ready(io::Read::read(&mut link.inbox, buffer));
        }
        if link.end == Some(End::Closed) {
            return Poll::Ready(Ok(0));
        }
        link.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut world = self.shared.world();
        let end = world.network.links.get(&self.link).map(|link| link.end);
        if end != Some(None) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let wakers = world.send(self.link, bytes);
        drop(world);
        wakers.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.world().hang_up(self.link);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.shared.world().hang_up(self.link);
    }
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStream")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
