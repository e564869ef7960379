//! The clock and the servers for one topology, whose futures are never pending.

use std::{future::Future, sync::Arc, time::Duration};

use futures::future::FutureExt;
use sdam_core::{address::ServerAddress, options::Options, time::Instant};
use sdam_testkit::{ManualClock, RecordingPools, Reply, Server, Servers};
use sdam_transport::{clock::Clock, runtime::Backend};

use crate::running::{ScanTopology, TopologyBuilder};
use crate::running::{builder, check_nothing_left};

/// The environment for a topology.
#[derive(Debug)]
pub(super) struct Harness {
    clock: ManualClock,
    pub(super) servers: Servers,
    pub(super) pools: RecordingPools,
}

impl Harness {
    /// Creates an environment in which no server is reachable.
    pub(super) fn new() -> Self {
        let clock = ManualClock::jumping();
        Self {
            servers: Servers::new(clock.clone(), Server::refusing("the server is unreachable")),
            pools: RecordingPools::default(),
            clock,
        }
    }

    /// Starts the topology that `build` creates from `options`.
    pub(super) fn start(
        &self,
        options: Options,
        build: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> Result<ScanTopology, String> {
        let (clock, servers) = (self.clock.clone(), self.servers.clone());
        let backend = Backend::new(Arc::new(clock), Arc::new(servers), 1);
        let topology = build(builder(options, &self.pools)?).scan(backend);
        topology.map_err(|error| error.to_string())
    }

    /// Makes the server at `address` reachable. It waits for `delay` before each reply.
    pub(super) fn serve(&self, address: &ServerAddress, delay: Duration, reply: Reply) {
        let server = Server::computing(reply);
        self.servers.set(address, Server { delay, ..server });
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn advance_to(&self, instant: Instant) {
        self.clock.advance_to(instant);
    }

    /// Closes `topology`. Fails if a connection or pool is left.
    pub(super) fn close(&self, topology: &mut ScanTopology) -> Result<(), String> {
        topology.close();
        check_nothing_left(&[
            ("connections", self.servers.connections()),
            ("pools", self.pools.generations().len()),
        ])
    }
}

/// Returns the result of `future`, which must be ready at its first poll.
pub(super) fn ready<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let output = future.now_or_never();
    output.ok_or_else(|| "the future is pending".to_owned())
}
