//! The dialer: connect and host name look-up.

use std::{
    fmt::Debug,
    future::Future,
    io,
    net::IpAddr,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{
    future::{BoxFuture, Either, FutureExt},
    io::{AsyncRead, AsyncWrite},
};
use sdam_core::time::Instant;
use sdam_transport::{ByteStream, Dial, DialTarget, async_trait, system::tune_tcp};
#[cfg(not(unix))]
use tokio::net::TcpStream as UnixStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::ReadBuf,
    net::{TcpStream, lookup_host},
    runtime::Handle,
};

#[derive(Debug)]
pub(crate) struct TokioDial {
    handle: Handle,
}

impl TokioDial {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Awaits `connect`; the panic of a tokio runtime without I/O becomes an error.
    async fn open<S>(&self, connect: impl Future<Output = io::Result<S>> + Send) -> io::Result<S> {
        let connect = AssertUnwindSafe(connect).catch_unwind();
        self.enter(connect).await.unwrap_or_else(|_| {
            Err(io::Error::other(
                "the tokio runtime has no I/O: build it with `enable_all`",
            ))
        })
    }

    fn enter<'f, T>(&self, future: impl Future<Output = T> + Send + 'f) -> Entered<'f, T> {
        Entered {
            handle: self.handle.clone(),
            future: Box::pin(future),
        }
    }
}

#[async_trait]
impl Dial for TokioDial {
    type Stream = Either<Compat<TcpStream>, Compat<UnixStream>>;

    async fn dial(&self, target: &DialTarget, _: Option<Instant>) -> io::Result<Self::Stream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = self.open(TcpStream::connect(*address)).await?;
                tune_tcp(&stream)?;
                Ok(Either::Left(Compat(stream)))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = self.open(UnixStream::connect(path)).await?;
                Ok(Either::Right(Compat(stream)))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_ip(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = self.enter(lookup_host((host, 0))).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }
}

/// A future that enters the runtime's context at each poll, whichever thread polls it.
///
/// Only opening a socket needs the context; using or dropping an open one does not.
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

/// A tokio socket with the `futures` I/O traits.
#[derive(Debug)]
pub(crate) struct Compat<S>(S);

impl<S> ByteStream for Compat<S> where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + Debug + 'static
{
}

impl<S: tokio::io::AsyncRead + Unpin> AsyncRead for Compat<S> {
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

impl<S: tokio::io::AsyncWrite + Unpin> AsyncWrite for Compat<S> {
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
