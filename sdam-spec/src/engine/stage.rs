//! The world of one topology: where its tasks run, its time, its servers and its pools.

use std::sync::Arc;

use sdam::{builder::TopologyBuilder, topology::Topology};
use sdam_core::{address::ServerAddress, options::Options, time::Instant};
use sdam_transport::{
    clock::Clock,
    runtime::{Io, Runtime},
};

use super::{Host, activity::Activity, clock::ManualClock, transport::ScriptedTransport};
use crate::running::{builder, nothing_left, pools::RecordingPools};

/// How often time may have to pass until a server is asked: once to the end of the pause between
/// its checks, and once more if that was spent on another server.
const PATIENCE: usize = 16;

/// Everything that a topology is given, in the hands of a script.
pub(super) struct Stage<'h> {
    pub(super) host: &'h Host,
    activity: Activity,
    pub(super) clock: ManualClock,
    pub(super) transport: ScriptedTransport,
    pub(super) pools: RecordingPools,
}

impl<'h> Stage<'h> {
    pub(super) fn new(host: &'h Host, transport: ScriptedTransport) -> Self {
        let clock = ManualClock::default();
        clock.advance_to(Instant::from_millis(1));
        Self {
            host,
            activity: Activity::default(),
            clock,
            transport,
            pools: RecordingPools::default(),
        }
    }

    /// Starts the topology that `build` makes of `options`.
    pub(super) fn start(
        &self,
        options: Options,
        build: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> Result<Topology, String> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let io = Io::new(clock, Arc::new(self.transport.clone()), 1);
        let spawner = self.activity.watch(self.host.spawner());
        let builder = builder(options, &self.pools)?;
        let topology = build(builder)
            .start(Runtime::new(io, Arc::new(spawner)))
            .map_err(|error| error.to_string())?;
        self.settle();
        Ok(topology)
    }

    /// The present.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Lets tasks run until all of them wait for the script.
    pub(super) fn settle(&self) {
        self.host.block_on(self.settled());
    }

    /// As [`settle`](Self::settle), for code that is on the host already.
    pub(super) fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.activity.settled()
    }

    /// Lets time pass until the server at `address` is asked.
    pub(super) fn await_request(&self, address: &ServerAddress) -> Result<(), String> {
        for _ in 0..PATIENCE {
            match self.transport.requests(address) {
                0 => {}
                1 => return Ok(()),
                number => return Err(format!("{address} is asked {number} times at once")),
            }
            let next = self.clock.next_deadline();
            let next = next.ok_or_else(|| format!("nobody will ever ask {address}"))?;
            self.clock.advance_to(next);
            self.settle();
        }
        Err(format!("nobody asks {address}"))
    }

    /// Lets the server at `address` answer its next check, and the topology digest that.
    pub(super) fn answer(
        &self,
        address: &ServerAddress,
        reply: Option<&[u8]>,
    ) -> Result<(), String> {
        self.await_request(address)?;
        self.transport.answer(address, reply)?;
        self.settle();
        Ok(())
    }

    /// Closes `topology`; nothing of it may be left.
    pub(super) fn close(&self, topology: &Topology) -> Result<(), String> {
        self.host.block_on(topology.close());
        self.settle();
        nothing_left(&[
            ("tasks", self.activity.alive()),
            ("connections", self.transport.connections()),
            ("pools", self.pools.generations().len()),
        ])
    }
}
