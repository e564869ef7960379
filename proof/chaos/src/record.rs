//! The record of a run: events, pools, waiting selections, stalls of the host and violations.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::{AddAssign, Range},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sdam_core::{
    event::Event,
    ids::{Generation, ServerId},
    pool::PoolClear,
    time::Instant,
};
use sdam_events::sink::{EventSink, Interest};
use sdam_model::oracle::is_selectable;
use sdam_pool::{Pool, Pools};
use sdam_sim::oracle::{Oracle, PoolCall, PoolCalls, Violation};
use sdam_transport::{
    clock::Clock,
    pool::{PoolContext, PoolFactory, PoolHandle},
    spawn::Task,
};

use crate::{
    coverage::Coverage,
    load::{SelectionRequest, balanced::BalancedPool},
};

/// A topology with recording pools.
pub(crate) type Topology = sdam::Topology<RecordingPool>;
/// A builder for topologies with recording pools.
pub(crate) type TopologyBuilder = sdam::TopologyBuilder<RecordingPool>;
/// A single-threaded topology with recording pools.
pub(crate) type ScanTopology = sdam::ScanTopology<RecordingPool>;
/// A selected server with its recording pool.
pub(crate) type SelectedServer = sdam::SelectedServer<RecordingPool>;

/// The record of one run. Locks are held briefly, and never two at the same time.
#[derive(Default)]
pub(crate) struct RunRecord {
    clock: OnceLock<Arc<dyn Clock>>,
    topology: Mutex<Option<Topology>>,
    pub(crate) events: Mutex<Vec<Event>>,
    pub(crate) pools: Mutex<PoolRecord>,
    /// The pools that open connections, including closed ones.
    pub(crate) connecting: Mutex<Vec<Pool>>,
    pub(crate) balanced: Mutex<BalancedPool>,
    /// The pooled connections that received an invalid reply or were discarded.
    pub(crate) out_of_step: Mutex<BTreeSet<(ServerId, u64)>>,
    pub(crate) waiting: Mutex<BTreeMap<u64, Waiting>>,
    /// The version of the newest snapshot that the watcher has received.
    pub(crate) watched: Mutex<Option<u64>>,
    violation: Mutex<Option<Violation>>,
    pub(crate) notes: Mutex<Vec<(Instant, String)>>,
    pub(crate) stalls: Mutex<Stalls>,
    /// The maximum time by which a timer is late.
    pub(crate) lateness: Duration,
    /// The number of live load tasks.
    pub(crate) load: AtomicUsize,
    /// The number of check-outs in progress.
    pub(crate) checking_out: AtomicUsize,
    pub(crate) counts: Mutex<Counts>,
    /// The errors that applications reported.
    pub(crate) errors: Mutex<Coverage>,
}

/// Declares the counts, each with a description.
macro_rules! counts {
    ($($name:ident: $text:literal,)*) => {
        /// Counts how often a run exercised certain situations, which proves that the run tested
        /// something.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(#[doc = concat!("Number of ", $text, ".")] pub $name: u64,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$(format!(concat!("{} ", $text), self.$name)),*];
                f.write_str(&all.join(", "))
            }
        }
    };
}

counts! {
    faults: "faults",
    selected: "selections of a server",
    timed_out: "time-outs of selections",
    errors: "reported errors",
    late: "errors of closed connections to services behind a load balancer",
    handshakes: "reported handshakes",
    operations: "commands answered on pooled connections",
    bad_replies: "invalid replies to commands",
    refused: "refused check-outs",
    encrypted: "connections with TLS",
    proxied: "connections to a proxy",
    look_ups: "look-ups of SRV records",
    suspicions: "suspicions of silent servers",
    stalls: "stalls of the client's host",
    // An example is a primary that counts as stale by the election rules for servers before 6.0.
    excused: "servers whose role need not be known at the end",
    unended: "connections that outlived their topology",
}

/// A selection in progress.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) request: SelectionRequest,
    pub(crate) deadline: Instant,
}

/// The record of the calls to pools.
#[derive(Default)]
pub(crate) struct PoolRecord {
    pub(crate) calls: PoolCalls,
    /// The pools that are not closed.
    pub(crate) open: BTreeMap<ServerId, PoolState>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PoolState {
    pub(crate) ready: bool,
    pub(crate) generation: Generation,
}

impl RunRecord {
    pub(crate) fn new(lateness: Duration) -> Self {
        Self { lateness, ..Self::default() }
    }

    pub(crate) fn set_clock(&self, clock: Arc<dyn Clock>) {
        // A record serves one run, so the clock is set only once.
        let _ = self.clock.set(clock);
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.get().map_or(Instant::EPOCH, |clock| clock.now())
    }

    pub(crate) fn attach(&self, topology: Topology) {
        *lock(&self.topology) = Some(topology);
    }

    /// Removes and returns the topology handle that the record holds, so that dropping the caller's
    /// handle can close the topology.
    pub(crate) fn detach(&self) -> Option<Topology> {
        lock(&self.topology).take()
    }

    pub(crate) fn topology(&self) -> Option<Topology> {
        lock(&self.topology).clone()
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        let now = self.now();
        lock(&self.notes).push((now, text.into()));
    }

    pub(crate) fn pool(&self, server: ServerId) -> Option<PoolState> {
        lock(&self.pools).open.get(&server).cloned()
    }

    /// Stores the violation if it is the first one. Later violations are ignored, because they may
    /// be consequences of the first.
    pub(crate) fn violated(&self, oracle: Oracle, message: impl Into<String>) {
        let violation = oracle.violated(self.now(), message);
        lock(&self.violation).get_or_insert(violation);
    }

    /// Stores a violation unless the condition holds.
    pub(crate) fn ensure(&self, holds: bool, oracle: Oracle, message: impl FnOnce() -> String) {
        if !holds {
            self.violated(oracle, message());
        }
    }

    pub(crate) fn verdict(&self) -> Option<Violation> {
        lock(&self.violation).clone()
    }

    pub(crate) fn load_alive(&self) -> usize {
        self.load.load(Ordering::SeqCst)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event listener that records every event.
#[derive(Debug)]
pub(crate) struct EventRecorder(pub(crate) Arc<RunRecord>);

impl EventSink for EventRecorder {
    fn emit(&self, event: &Event) {
        lock(&self.0.events).push(event.clone());
    }

    fn interest(&self) -> Interest {
        Interest::ALL.union(Interest::INPUTS)
    }
}

/// A factory for pools that record their calls.
#[derive(Debug)]
pub(crate) struct RecordingPools {
    pub(crate) record: Arc<RunRecord>,
    /// The factory for pools that open connections, if the run has any.
    pub(crate) connecting: Option<Pools>,
}

#[derive(Debug)]
pub(crate) struct RecordingPool {
    server: ServerId,
    record: Arc<RunRecord>,
    /// The pool that opens connections; `None` if the run has no pooled connections.
    pub(crate) connecting: Option<Pool>,
}

impl PoolFactory for RecordingPools {
    type Pool = RecordingPool;

    fn create(&self, context: PoolContext) -> RecordingPool {
        let server = context.server;
        let before = lock(&self.record.pools).open.insert(server, PoolState::default());
        self.record.ensure(before.is_none(), Oracle::Pools, || {
            format!("a second pool is created for server {server}")
        });
        let connecting = self.connecting.as_ref().map(|pools| pools.create(context));
        lock(&self.record.connecting).extend(connecting.clone());
        RecordingPool { server, record: Arc::clone(&self.record), connecting }
    }
}

impl RecordingPool {
    /// Returns whether the published snapshot contains the server and the server can be selected.
    fn is_published(&self) -> Option<bool> {
        let topology = self.record.topology()?;
        let snapshot = topology.snapshot();
        let description = snapshot.description();
        let server = description.server_by_id(self.server);
        Some(server.is_some_and(|server| is_selectable(description, server)))
    }

    fn record_call(&self, call: PoolCall) {
        lock(&self.record.pools).calls.push((self.server, call));
    }
}

impl PoolHandle for RecordingPool {
    fn ready(&self) {
        self.record.ensure(self.is_published() != Some(true), Oracle::Pools, || {
            format!("F-62: server {} is published before its pool is ready", self.server)
        });
        self.record_call(PoolCall::Ready);
        if let Some(state) = lock(&self.record.pools).open.get_mut(&self.server) {
            state.ready = true;
        }
        self.connecting.iter().for_each(Pool::ready);
    }

    fn prepare(&self) {
        self.connecting.iter().for_each(Pool::prepare);
    }

    fn clear(&self, clear: &PoolClear) {
        let is_right = clear.service_id.is_some() || self.is_published() != Some(true);
        self.record.ensure(is_right, Oracle::Pools, || {
            let server = self.server;
            format!("F-64: the pool of server {server} is cleared before the failure is published")
        });
        self.record_call(PoolCall::Clear(clear.clone()));
        if let Some(service) = clear.service_id {
            if self.connecting.is_none()
                && let Err(complaint) = lock(&self.record.balanced).clear(service, clear.generation)
            {
                self.record.violated(Oracle::Pools, complaint);
            }
        } else if let Some(state) = lock(&self.record.pools).open.get_mut(&self.server) {
            state.ready = false;
            state.generation = clear.generation;
        }
        self.connecting.iter().for_each(|pool| pool.clear(clear));
    }

    fn close(&self) {
        self.record_call(PoolCall::Close);
        let closed = lock(&self.record.pools).open.remove(&self.server);
        self.record.ensure(closed.is_some(), Oracle::Pools, || {
            format!("the pool of server {} is closed twice", self.server)
        });
        self.connecting.iter().for_each(Pool::close);
    }

    fn background(&self) -> Option<Task> {
        self.connecting.as_ref()?.background()
    }
}

sdam_core::opaque!(RunRecord);

/// The stalls so far, in order.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Vec<Range<Instant>>);

impl Stalls {
    /// Adds a stall that is later than all others.
    pub(crate) fn add(&mut self, stall: Range<Instant>) {
        self.0.push(stall);
    }

    /// Returns the time at which a timer that is due at `due` fires.
    pub(crate) fn fires(&self, due: Instant) -> Instant {
        let during = self.0.iter().find(|stall| stall.contains(&due));
        during.map_or(due, |stall| stall.end)
    }

    /// Returns for how long the host stalled between `from` and `to`.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Duration {
        self.0.iter().map(|stall| stall.end.min(to).since(stall.start.max(from))).sum()
    }

    /// Returns the stall that ended at this time.
    pub(crate) fn ended(&self, at: Instant) -> Option<&Range<Instant>> {
        self.0.iter().find(|stall| stall.end == at)
    }

    /// Returns the end of the last stall.
    pub(crate) fn end(&self) -> Instant {
        self.0.last().map_or(Instant::EPOCH, |stall| stall.end)
    }
}
