//! The dialer, which connects sockets and looks up host names.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, Either, FutureExt};
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    system::tune_tcp,
};
#[cfg(not(unix))]
use tokio::net::TcpStream as UnixStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    net::{TcpStream, lookup_host},
    runtime::Handle,
};

use crate::stream::TokioStream;

#[derive(Debug)]
pub(crate) struct TokioDial {
    pub(crate) handle: Handle,
}

impl TokioDial {
    /// Awaits `connect`. If the runtime has no I/O, tokio panics; the panic is turned into an
    /// error.
    async fn open<S>(&self, connect: impl Future<Output = io::Result<S>> + Send) -> io::Result<S> {
        let connect = AssertUnwindSafe(connect).catch_unwind();
        self.enter(connect).await.unwrap_or_else(|_| {
            Err(io::Error::other("the tokio runtime has no I/O: build it with `enable_all`"))
        })
    }

    fn enter<'f, T>(&self, future: impl Future<Output = T> + Send + 'f) -> Entered<'f, T> {
        Entered { handle: self.handle.clone(), future: Box::pin(future) }
    }
}

#[async_trait]
impl Dial for TokioDial {
    type Stream = Either<TokioStream<TcpStream>, TokioStream<UnixStream>>;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = self.open(TcpStream::connect(*address)).await?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(Either::Left(TokioStream(stream)))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = self.open(UnixStream::connect(path)).await?;
                Ok(Either::Right(TokioStream(stream)))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(self.enter(lookup_host((host, 0))).await?.collect())
    }
}

/// A future that enters the runtime's context at each poll, on any thread.
///
/// The context is needed only to open a socket, not to use or drop an open one.
struct Entered<'f, T> {
    handle: Handle,
    future: BoxFuture<'f, T>,
}

impl<T> Future for Entered<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        let _context = this.handle.enter();
        this.future.as_mut().poll(cx)
    }
}
