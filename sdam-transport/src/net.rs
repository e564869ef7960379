//! A [`Transport`] that is built on a dialer of sockets.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::TryFutureExt as _;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    options::ProxyOptions,
    time::Instant,
};

use crate::{
    clock::Clock,
    connect::{Connection, Transport},
    dial::{Dial, DialOptions, DialTarget},
    error,
    framed::Framed,
    layers::{Guards, Layers},
    race::{self, ATTEMPT_DELAY, NoSuccess},
    socks,
    stream::ByteStream,
    tls::Tls,
};

/// A transport that looks up a host name, races its addresses, and frames messages on the winning
/// socket.
///
/// Supports all [`Layers`]: an address translation before the look-up, TLS over the socket, and a
/// SOCKS5 proxy. If there is a proxy, it looks up the name and connects in place of this transport.
/// Unix domain sockets bypass the proxy, which supports only TCP (SOCKS5 Support: "Connection
/// Establishment").
///
/// Errors name the server, and state how the attempt at each of its IP addresses ended.
#[derive(Debug)]
pub struct NetTransport<D> {
    dial: Arc<D>,
    clock: Arc<dyn Clock>,
    attempt_delay: Duration,
    layers: Layers,
}

impl<D: Dial> NetTransport<D> {
    /// Creates a transport that opens sockets with `dial` and measures timeouts with `clock`.
    pub fn new(dial: D, clock: Arc<dyn Clock>) -> Self {
        Self {
            dial: Arc::new(dial),
            clock,
            attempt_delay: ATTEMPT_DELAY,
            layers: Layers::default(),
        }
    }

    /// Sets the delay before the next address is tried. By default, it is 250 ms.
    #[must_use]
    pub fn with_attempt_delay(mut self, delay: Duration) -> Self {
        self.attempt_delay = delay;
        self
    }

    /// Opens a stream to the server `target`, at its translated address.
    async fn open(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<D::Stream, Error> {
        let Some(translate) = &self.layers.translate else {
            return self.reach(target, deadline).await;
        };
        let place = translate.translate(target);
        let opened = self.reach(&place, deadline).await;
        opened.map_err(|error| {
            if place == *target {
                return error;
            }
            error.within(&format!("dialling {place} for it"))
        })
    }

    /// Opens a stream to `place`, through the proxy if there is one.
    async fn reach(
        &self,
        place: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<D::Stream, Error> {
        match &self.layers.proxy {
            // The future is boxed, so that connections without a proxy need no memory for it.
            Some(proxy) if !place.is_unix() => Box::pin(self.pass(proxy, place, deadline)).await,
            _ => self.dial(place, deadline).await,
        }
    }

    /// Opens a stream to `place` through the proxy.
    async fn pass(
        &self,
        proxy: &ProxyOptions,
        place: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<D::Stream, Error> {
        let entrance = ServerAddress::new(&proxy.host, proxy.port);
        let dialled = self.dial(&entrance, deadline).await;
        let mut stream = dialled.map_err(|error| socks::unreachable(&error, &entrance, place))?;
        stream.set_deadline(deadline);
        let asked = socks::connect(&mut stream, proxy, place);
        race::deadline(&*self.clock, deadline, asked)
            .await
            .unwrap_or_else(|_| Err(socks::timed_out(&entrance, place)))?;
        stream.set_deadline(None);
        Ok(stream)
    }

    /// Negotiates TLS with `target` over `stream`.
    async fn encrypt(
        &self,
        tls: &dyn Tls,
        mut stream: D::Stream,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn ByteStream>, Error> {
        stream.set_deadline(deadline);
        let negotiated = tls.negotiate(Box::new(stream), target);
        let message = "the server did not finish the TLS handshake in time";
        let late = (Stage::Tls, message);
        let mut stream = race::within(&*self.clock, deadline, late, negotiated).await?;
        stream.set_deadline(None);
        Ok(stream)
    }

    /// Opens a socket to `target`.
    async fn dial(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<D::Stream, Error> {
        let Some(port) = target.port() else {
            let targets = vec![DialTarget::Unix(target.as_str().into())];
            return self.race(deadline, targets).await;
        };
        // An IP address with a zone is looked up, because only the system knows the zones.
        let addresses = match target.host().parse() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.resolve(target.host(), deadline).await?,
        };
        let targets = race::interleave(&addresses).into_iter().map(|mut address| {
            address.set_port(port);
            DialTarget::Tcp(address)
        });
        self.race(deadline, targets.collect()).await
    }

    async fn resolve(
        &self,
        host: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<SocketAddr>, Error> {
        let found = self.dial.lookup_host(host).map_err(|error| {
            error::from_io(Stage::Dns, "the host name could not be looked up", error)
        });
        let late = (Stage::Dns, "the host name look-up timed out");
        let addresses = race::within(&*self.clock, deadline, late, found).await?;
        if addresses.is_empty() {
            return Err(Error::network(Stage::Dns, "the host name has no address"));
        }
        Ok(addresses)
    }

    fn race(
        &self,
        deadline: Option<Instant>,
        candidates: Vec<DialTarget>,
    ) -> impl Future<Output = Result<D::Stream, Error>> {
        let mut left = candidates.len();
        let attempt = move |candidate: &DialTarget| {
            let deadline = if self.dial.blocks() {
                deadline.map(|deadline| share(self.clock.now(), deadline, left))
            } else {
                deadline
            };
            left = left.saturating_sub(1);
            let candidate = candidate.clone();
            let options = DialOptions { deadline, user_timeout: self.layers.user_timeout };
            async move { self.dial.dial(&candidate, options).await }
        };
        race::happy_eyeballs(&*self.clock, self.attempt_delay, deadline, candidates, attempt)
            .map_err(unreachable)
    }
}

#[async_trait]
impl<D: Dial> Transport for NetTransport<D> {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        let named = |error: Error| error.with_address(target);
        let stream = self.open(target, deadline).await.map_err(named)?;
        let Some(tls) = &self.layers.tls else {
            return Ok(Box::new(Framed::new(stream).with_target(target)));
        };
        let encrypted = self.encrypt(&**tls, stream, target, deadline).await;
        let stream = encrypted.map_err(named)?;
        Ok(Box::new(Framed::new(stream).with_target(target)))
    }

    fn guards(&self) -> Guards {
        Guards { tls: self.layers.tls.is_some(), proxy: self.layers.proxy.is_some() }
    }

    fn with_layers(&self, layers: Layers) -> Option<Arc<dyn Transport>> {
        let own = self.layers.clone();
        Some(Arc::new(Self {
            dial: Arc::clone(&self.dial),
            clock: Arc::clone(&self.clock),
            attempt_delay: self.attempt_delay,
            layers: Layers {
                translate: layers.translate.or(own.translate),
                proxy: layers.proxy.or(own.proxy),
                tls: layers.tls.or(own.tls),
                user_timeout: layers.user_timeout.or(own.user_timeout),
            },
        }))
    }
}

/// Returns the deadline for the next of `left` attempts that are made one after another.
fn share(now: Instant, deadline: Instant, left: usize) -> Instant {
    let left = u32::try_from(left).unwrap_or(u32::MAX).max(1);
    now + deadline.since(now) / left
}

fn unreachable(lost: NoSuccess<DialTarget, io::Error>) -> Error {
    let expired = |(_, error): &(_, io::Error)| error.kind() == io::ErrorKind::TimedOut;
    let error = if lost.is_timeout() || lost.failed.iter().all(expired) {
        Error::timeout(Stage::Connect, "connecting timed out")
    } else {
        Error::network(Stage::Connect, "could not connect")
    };
    error.with_source(Attempts(lost))
}

/// The results of all attempts, which the error message lists.
#[derive(Debug)]
struct Attempts(NoSuccess<DialTarget, io::Error>);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoSuccess { failed, running, waiting } = &self.0;
        let failed = failed.iter().map(|(candidate, error)| format!("{candidate}: {error}"));
        let running = running.iter().map(|candidate| format!("{candidate}: no reply"));
        let waiting = waiting.iter().map(|candidate| format!("{candidate}: not tried"));
        f.write_str(&failed.chain(running).chain(waiting).collect::<Vec<_>>().join("; "))
    }
}

impl std::error::Error for Attempts {}
