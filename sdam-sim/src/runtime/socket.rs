//! Connections of the program under test over the simulated network, and its dialer.

use std::{
    collections::VecDeque,
    future::pending,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_core::{address::ServerAddress, time::Instant};
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    stream::ByteStream,
};

use super::{
    Shared, disturbance::Disturbance, dns, executor::Sleep, network::Tap, proxy::Session,
    state::Unreached, tls::Endpoint,
};
use crate::{ConnectionId, MemberId};

/// A connection between the program and a server or a proxy.
#[derive(Debug)]
pub(super) struct Socket {
    /// The server at the other end. It is `None` until a proxy has connected to a server.
    pub(super) server: Option<ConnectionId>,
    /// The proxy's address and session.
    pub(super) proxy: Option<(ServerAddress, Session)>,
    /// The server's end of the TLS connection.
    pub(super) tls: Endpoint,
    pub(super) tap: Tap,
    /// Bytes that have arrived but have not been read yet.
    pub(super) inbox: VecDeque<u8>,
    pub(super) reader: Option<Waker>,
    pub(super) end: Option<End>,
    /// The last arrival time for each direction. Data arrives in order.
    pub(super) last_arrival: [Instant; 2],
    /// The directions in which bytes were lost.
    pub(super) cut: [bool; 2],
    /// The number of bytes that the server may still send before the connection is reset; `None` if
    /// there is no limit.
    pub(super) reset_after: Option<usize>,
}

impl Socket {
    /// Creates a connection, through `proxy` if there is one. Without a proxy, the caller sets
    /// [`server`](Self::server) before use.
    pub(super) fn new(now: Instant, proxy: Option<ServerAddress>) -> Self {
        Self {
            server: None,
            tap: Tap::new(proxy.is_some()),
            proxy: proxy.map(|address| (address, Session::default())),
            tls: Endpoint::default(),
            inbox: VecDeque::new(),
            reader: None,
            end: None,
            last_arrival: [now; 2],
            cut: [false; 2],
            reset_after: None,
        }
    }

    /// Returns whether this is a connection to `member`, directly or through a proxy.
    pub(super) fn leads_to(&self, member: MemberId) -> bool {
        self.server.is_some_and(|own| own.member == member)
    }

    /// Returns whether this connection uses the proxy at `address`.
    pub(super) fn goes_through(&self, address: &ServerAddress) -> bool {
        let proxy = self.proxy.as_ref();
        proxy.is_some_and(|(own, _)| own == address)
    }
}

/// The way in which a connection has ended, as the program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Reset,
}

/// A byte stream. Dropping it closes the connection.
pub(super) struct SimStream {
    shared: Arc<Shared>,
    socket: u64,
}

impl SimStream {
    pub(super) fn new(shared: Arc<Shared>, socket: u64) -> Self {
        Self { shared, socket }
    }

    /// Returns whether the socket is not ready for this one call, because of a disturbance. If so,
    /// wakes the task.
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

/// The dialer of the simulated network.
#[derive(Debug)]
pub(super) struct SimDial(pub(super) Arc<Shared>);

impl SimDial {
    /// Waits for the one-way latency of the network.
    async fn one_way(&self) {
        let deadline = {
            let mut state = self.0.state();
            state.now() + state.one_way()
        };
        Sleep::new(Arc::clone(&self.0), deadline).await;
    }
}

#[async_trait]
impl Dial for SimDial {
    type Stream = SimStream;

    async fn dial(&self, target: &DialTarget, _: DialOptions) -> io::Result<SimStream> {
        let DialTarget::Tcp(target) = target else {
            return Err(target.unsupported());
        };
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let address = {
            let state = self.0.state();
            let host = state.network.host_at(target.ip()).ok_or_else(refused)?;
            ServerAddress::new(host, target.port())
        };
        self.one_way().await;
        let attempt = self.0.state().accept(&address);
        match attempt {
            Err(Unreached::Silent) => pending().await,
            Err(Unreached::Refused | Unreached::Nowhere) => {
                self.one_way().await;
                Err(refused())
            }
            Ok(socket) => {
                let stream = SimStream::new(Arc::clone(&self.0), socket);
                self.one_way().await;
                // The network may have failed while the reply was in transit.
                if self.0.state().is_silent(&address) {
                    return pending().await;
                }
                Ok(stream)
            }
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let found = dns::look_up(&self.0, host).await;
        found.map_err(|refusal| refusal.of_host(host))?;
        Ok(vec![SocketAddr::new(self.0.state().network.ip_of(host), 0)])
    }
}

sdam_core::opaque!(SimStream, |this| link: this.socket);
