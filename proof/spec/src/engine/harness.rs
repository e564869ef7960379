//! The environment of one topology: tasks, clock, servers and pools.

use std::sync::Arc;

use sdam_core::{address::ServerAddress, options::Options, time::Instant};
use sdam_testkit::{ManualClock, RecordingPools, Server, Servers};
use sdam_transport::{
    clock::Clock,
    runtime::{Backend, Runtime},
};

use super::activity::Activity;
use crate::host::Host;
use crate::running::{Topology, TopologyBuilder};
use crate::running::{builder, check_nothing_left};

/// The maximum number of times that the clock is advanced until a server is checked. Advancing it
/// once is usually enough, but other servers may be checked first.
const MAX_ADVANCES: usize = 16;

/// The scripted environment of a topology.
pub(super) struct Harness<'h> {
    pub(super) host: &'h Host,
    activity: Activity,
    pub(super) clock: ManualClock,
    pub(super) servers: Servers,
    pub(super) pools: RecordingPools,
}

impl<'h> Harness<'h> {
    /// Creates an environment in which requests wait until the script answers them.
    pub(super) fn new(host: &'h Host) -> Self {
        let clock = ManualClock::default();
        clock.advance_to(Instant::from_millis(1));
        Self {
            host,
            activity: Activity::default(),
            servers: Servers::new(clock.clone(), Server::silent()),
            clock,
            pools: RecordingPools::default(),
        }
    }

    /// Creates an environment in which connections also wait for the script before they open.
    pub(super) fn slow(host: &'h Host) -> Self {
        let harness = Self::new(host);
        let servers = harness.servers.clone().holding_connections();
        Self { servers, ..harness }
    }

    /// Starts the topology that `build` creates from `options`.
    pub(super) fn start(
        &self,
        options: Options,
        build: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> Result<Topology, String> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let backend = Backend::new(clock, Arc::new(self.servers.clone()), 1);
        let spawner = self.activity.watch(Arc::clone(&self.host.spawner));
        let builder = builder(options, &self.pools)?;
        let runtime = Runtime::new(backend, Arc::new(spawner));
        let topology = build(builder).start(runtime).map_err(|error| error.to_string())?;
        self.settle();
        Ok(topology)
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Runs tasks until all of them are waiting for the script.
    pub(super) fn settle(&self) {
        self.host.block_on(self.settled());
    }

    /// Waits as [`settle`](Self::settle) does, for code that already runs on the host.
    pub(super) fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.activity.settled()
    }

    /// Advances the clock until the server at `address` is checked.
    pub(super) fn await_request(&self, address: &ServerAddress) -> Result<(), String> {
        for _ in 0..MAX_ADVANCES {
            match self.servers.requests(address) {
                0 => {}
                1 => return Ok(()),
                number => return Err(format!("{address} has {number} concurrent checks")),
            }
            let next = self.clock.next_deadline();
            let next = next.ok_or_else(|| format!("{address} is never checked"))?;
            self.clock.advance_to(next);
            self.settle();
        }
        Err(format!("{address} was not checked"))
    }

    /// Answers the next check of the server at `address`, and waits until all effects of the answer
    /// are complete.
    pub(super) fn answer(
        &self,
        address: &ServerAddress,
        reply: Option<&[u8]>,
    ) -> Result<(), String> {
        self.await_request(address)?;
        self.servers.answer(address, reply)?;
        self.settle();
        Ok(())
    }

    /// Closes `topology`. Fails if a task, connection or pool is left.
    pub(super) fn close(&self, topology: &Topology) -> Result<(), String> {
        self.host.block_on(topology.close());
        self.settle();
        check_nothing_left(&[
            ("tasks", self.activity.alive()),
            ("connections", self.servers.connections()),
            ("pools", self.pools.generations().len()),
        ])
    }
}
