//! The tokio runtime for sdam.
//!
//! [`from_handle`] and [`current`] store a [`Handle`]. No runtime context is needed afterwards, so
//! timers, connections and tasks work on every thread and under every executor. If the runtime has
//! shut down, opening a connection fails with an error instead of a panic.
//!
//! The clock is the system's clock, which tokio's paused time does not affect. Tests that need
//! virtual time use a simulated runtime instead.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
#[cfg(test)]
mod tests;

use std::{
    fmt::Debug,
    future::Future,
    io,
    net::SocketAddr,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{
    future::{BoxFuture, Either, FutureExt},
    io::{AsyncRead, AsyncWrite},
};
use sdam_core::options::ConfigError;
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    runtime::{Backend, Runtime},
    spawn::SpawnBy,
    stream::ByteStream,
    system::{self, tune_tcp},
};
#[cfg(not(unix))]
use tokio::net::TcpStream as UnixStream;
#[cfg(unix)]
use tokio::net::UnixStream;
#[doc(no_inline)]
pub use tokio::runtime::Handle;
use tokio::{
    io::ReadBuf,
    net::{TcpStream, lookup_host},
};

/// Returns the tokio runtime behind `handle`.
///
/// Tasks, timers and sockets run on that runtime, whichever thread uses them. The handle does not
/// keep the runtime alive. The random seed comes from the system's entropy.
///
/// A runtime without I/O ([`enable_io`](tokio::runtime::Builder)) is accepted; every connection
/// attempt then fails with an error that names the cause.
///
/// # Errors
///
/// If tokio's timers are not enabled. Tokio reports this only by panicking. The panic
/// is caught, but panic hooks still see it.
pub fn from_handle(handle: Handle) -> Result<Runtime, ConfigError> {
    let clock = panic::catch_unwind(AssertUnwindSafe(|| clock::of(handle.clone())));
    let clock = clock.map_err(|_| {
        let remedy = "build it with `enable_all`, or `enable_time` and `enable_io`";
        refuse("the runtime has no timers", remedy)
    })?;
    let dial = TokioDial { handle: handle.clone() };
    let backend = Backend::of_sockets(dial, clock, system::entropy());
    // Dropping the join handle detaches the task.
    let spawner = SpawnBy { runtime: "tokio", spawn: move |task| drop(handle.spawn(task)) };
    Ok(Runtime::new(backend, Arc::new(spawner)))
}

/// Returns the tokio runtime of the current context, see [`from_handle`].
///
/// # Errors
///
/// If there is no tokio context, or if the runtime has no timers.
pub fn current() -> Result<Runtime, ConfigError> {
    let handle = Handle::try_current().map_err(|_| {
        let remedy = "call this inside `block_on` or a task, or pass a handle";
        refuse("this is not in the context of a tokio runtime", remedy)
    })?;
    from_handle(handle)
}

fn refuse(reason: &str, remedy: &str) -> ConfigError {
    ConfigError::new("runtime", "tokio", reason, remedy)
}

/// A tokio stream that implements [`ByteStream`] and the I/O traits of `futures`.
///
/// Meant for programs that open or accept a socket themselves, and then relay it or pass it to a
/// transport's layers. The runtime's context is needed only to open a socket; an open socket works
/// on every thread.
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

/// The dialer, which connects sockets and looks up host names.
#[derive(Debug)]
struct TokioDial {
    handle: Handle,
}

impl TokioDial {
    /// Awaits `connect`. If the runtime has no I/O, tokio panics; the panic is turned into an
    /// error.
    fn open<'f, S>(
        &self,
        connect: BoxFuture<'f, io::Result<S>>,
    ) -> impl Future<Output = io::Result<S>> + Send + use<'f, S> {
        self.enter(AssertUnwindSafe(connect).catch_unwind()).map(|opened| {
            opened.unwrap_or_else(|_| {
                Err(io::Error::other("the tokio runtime has no I/O: build it with `enable_all`"))
            })
        })
    }

    fn enter<F>(&self, future: F) -> Entered<F> {
        Entered { handle: self.handle.clone(), future }
    }
}

#[async_trait]
impl Dial for TokioDial {
    type Stream = Either<TokioStream<TcpStream>, TokioStream<UnixStream>>;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = self.open(Box::pin(TcpStream::connect(*address))).await?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(Either::Left(TokioStream(stream)))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = self.open(Box::pin(UnixStream::connect(path))).await?;
                Ok(Either::Right(TokioStream(stream)))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(self.enter(Box::pin(lookup_host((host, 0)))).await?.collect())
    }
}

/// A future that enters the runtime's context at each poll, on any thread.
///
/// The context is needed only to open a socket, not to use or drop an open one.
struct Entered<F> {
    handle: Handle,
    future: F,
}

impl<F: Future + Unpin> Future for Entered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _context = this.handle.enter();
        Pin::new(&mut this.future).poll(cx)
    }
}
