//! The clock and servers of one topology; no future in it is ever pending.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use sdam::{builder::TopologyBuilder, scan::ScanTopology};
use sdam_core::{address::ServerAddress, error::Stage, options::Options, time::Instant};
use sdam_transport::{
    Clock, Connection, Io, Transport, TransportError, async_trait, wire::WireMessage,
};

use crate::{
    engine::transport::encode,
    running::{builder, nothing_left, pools::RecordingPools},
};

/// The environment of a topology; clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
    pub(super) pools: RecordingPools,
}

#[derive(Debug, Default)]
struct State {
    now: Instant,
    servers: BTreeMap<ServerAddress, Server>,
    /// The number of open connections.
    connections: usize,
}

/// A server that can be reached.
struct Server {
    /// The delay of a reply.
    delay: Duration,
    words: Words,
    /// The number of requests.
    asked: usize,
}

/// The BSON document of a server's reply at an instant; `None` breaks the connection instead.
pub(super) type Words = Arc<dyn Fn(Instant) -> Option<Vec<u8>> + Send + Sync>;

impl World {
    /// Starts the topology that `build` creates from `options`.
    pub(super) fn start(
        &self,
        options: Options,
        build: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> Result<ScanTopology, String> {
        let io = Io::new(Arc::new(self.clone()), Arc::new(self.clone()), 1);
        let topology = build(builder(options, &self.pools)?).scan(io);
        topology.map_err(|error| error.to_string())
    }

    /// Makes `address` reachable, with `delay` for each reply and the replies of `words`.
    pub(super) fn serve(&self, address: &ServerAddress, delay: Duration, words: Words) {
        let server = Server {
            delay,
            words,
            asked: 0,
        };
        self.lock().servers.insert(address.clone(), server);
    }

    /// Makes `address` unreachable and returns how many requests it received.
    pub(super) fn vanish(&self, address: &ServerAddress) -> usize {
        let server = self.lock().servers.remove(address);
        server.map_or(0, |server| server.asked)
    }

    pub(super) fn advance_to(&self, instant: Instant) {
        let mut state = self.lock();
        state.now = state.now.max(instant);
    }

    /// Closes `topology`; fails if anything of it is left.
    pub(super) fn close(&self, topology: &mut ScanTopology) -> Result<(), String> {
        topology.close();
        nothing_left(&[
            ("connections", self.lock().connections),
            ("pools", self.pools.generations().len()),
        ])
    }

    /// Returns the current reply of `address`.
    fn say(&self, address: &ServerAddress) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let server = state.servers.get_mut(address)?;
        server.asked += 1;
        let (delay, words) = (server.delay, Arc::clone(&server.words));
        state.now = state.now + delay;
        words(state.now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the same reply at every instant.
pub(super) fn always(words: Option<Vec<u8>>) -> Words {
    Arc::new(move |_| words.clone())
}

/// Returns the result of `future`, which must be ready at its first poll.
pub(super) fn ready<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let output = future.now_or_never();
    output.ok_or_else(|| "something is waited for that does not come by itself".to_owned())
}

impl Clock for World {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let world = self.clone();
        Box::pin(async move { world.advance_to(deadline) })
    }
}

#[async_trait]
impl Transport for World {
    async fn connect(
        &self,
        target: &ServerAddress,
        _deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, TransportError> {
        let mut state = self.lock();
        if !state.servers.contains_key(target) {
            return Err(TransportError::network(Stage::Connect, "nobody is there"));
        }
        state.connections += 1;
        Ok(Box::new(Line {
            world: self.clone(),
            address: target.clone(),
            sent: None,
        }))
    }
}

#[derive(Debug)]
struct Line {
    world: World,
    address: ServerAddress,
    sent: Option<WireMessage>,
}

#[async_trait]
impl Connection for Line {
    async fn send(&mut self, message: WireMessage) -> Result<(), TransportError> {
        self.sent = Some(message);
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, TransportError> {
        let nothing = || TransportError::protocol(Stage::Hello, "nothing was asked");
        let request = self.sent.take().ok_or_else(nothing)?;
        let broken = || TransportError::network(Stage::Hello, "the script says so");
        let body = self.world.say(&self.address).ok_or_else(broken)?;
        encode(&request, &body).map_err(|error| TransportError::from_wire(Stage::Hello, error))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.world.lock().connections -= 1;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("delay", &self.delay)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}
