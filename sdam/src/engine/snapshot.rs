//! State that is read without the topology's lock: immutable snapshots of a topology, and
//! selections that have published their started event, but not yet their last event.

use std::{collections::BTreeMap, mem, ops::Deref, sync::Arc};

use sdam_core::{
    address::ServerAddress,
    event::{EventKind, Selection, SelectionFailure},
    ids::ServerId,
    server::{ServerDescription, Silence},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::queue::EventQueue;
use sdam_transport::pool::PoolHandle;

use super::server::{Server, ServerFailures};
use crate::sync::{
    ArcSwap, Event, Guard, Mutex, MutexGuard,
    atomic::{Ordering, fence},
    lock,
};

/// The consistent, immutable state of a topology at one moment.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) version: u64,
    pub(crate) description: Arc<TopologyDescription>,
    /// The servers, in the same order as in the description.
    pub(crate) servers: Arc<[Arc<Server>]>,
    pub(crate) closed: bool,
}

impl Snapshot {
    /// Creates the initial snapshot, which contains no servers.
    pub(super) fn first(description: Arc<TopologyDescription>) -> Self {
        Self { version: 0, description, servers: Arc::default(), closed: false }
    }

    /// Returns the version, which counts publications from 1: a greater version is newer.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the topology description.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Returns whether the topology was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether the runtime has dropped the tasks of all servers although the topology was
    /// not closed, in which case every server stays Unknown. Returns false behind a load balancer,
    /// which has no task.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.servers.is_empty() && self.servers.iter().all(|server| server.is_abandoned())
    }

    /// Returns the servers, in the same order as in the description.
    pub fn servers(&self) -> impl ExactSizeIterator<Item = ServerState<'_>> {
        let descriptions = self.description.servers().iter();
        descriptions.enumerate().map(|(index, description)| ServerState {
            description,
            server: self.servers.get(index),
        })
    }

    /// Returns the server at `address`.
    pub fn server(&self, address: &ServerAddress) -> Option<ServerState<'_>> {
        let servers = self.description.servers();
        let index = servers.binary_search_by(|server| server.address.cmp(address)).ok()?;
        self.servers().nth(index)
    }

    /// Returns the server with this id.
    pub fn server_by_id(&self, id: ServerId) -> Option<ServerState<'_>> {
        self.servers().find(|server| server.description.id == id)
    }

    /// Returns the number of operations in progress on the server at this index.
    #[inline]
    pub(crate) fn operation_count(&self, index: usize) -> u32 {
        self.servers.get(index).map_or(0, |server| server.operation_count())
    }
}

/// One server of a [`Snapshot`]. Unlike a [`SelectedServer`](crate::SelectedServer), it is not
/// counted as an operation in progress, and may have any server type.
/// [`Topology::pool`](crate::Topology::pool) returns its pool.
#[derive(Clone, Copy, Debug)]
pub struct ServerState<'s> {
    description: &'s Arc<ServerDescription>,
    server: Option<&'s Arc<Server>>,
}

impl<'s> ServerState<'s> {
    /// Returns the description, as of the snapshot.
    pub fn description(&self) -> &'s Arc<ServerDescription> {
        self.description
    }

    /// Returns the pool, unless the pool factory panicked.
    pub(crate) fn pool(&self) -> Option<&'s dyn PoolHandle> {
        self.server.and_then(|server| server.core.pool())
    }

    /// Returns the number of operations in progress now (Server Selection: "operationCount").
    pub fn operation_count(&self) -> u32 {
        self.server.map_or(0, |server| server.operation_count())
    }

    /// Returns the first and last error so far.
    pub fn failures(&self) -> ServerFailures {
        self.server.map(|server| server.failures().clone()).unwrap_or_default()
    }

    /// Returns the current evidence that the server no longer answers. There is none behind a load
    /// balancer, which is not checked.
    pub fn silence(&self) -> Silence {
        self.server.map(|server| server.silence()).unwrap_or_default()
    }

    /// Returns the time since which a check has been trying to open its connection.
    pub(crate) fn connecting(&self) -> Option<Instant> {
        self.server.and_then(|server| server.connecting())
    }
}

sdam_core::opaque!(Snapshot, |this|
    version: this.version,
    description: this.description,
    closed: this.closed
);

/// The part of a topology that is read without its lock.
#[derive(Debug)]
pub(crate) struct Published {
    snapshot: ArcSwap<Snapshot>,
    /// Notified after each publication.
    pub(crate) changed: Event,
    pub(crate) pending: PendingSelections,
}

impl Published {
    pub(crate) fn new(first: Snapshot) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(first),
            changed: Event::new(),
            pending: PendingSelections::default(),
        }
    }

    pub(crate) fn load(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    pub(crate) fn load_full(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Wakes the readers that wait for the next publication.
    pub(crate) fn announce(&self) {
        // Notifies only if there are readers, because the first notification allocates. The fence
        // pairs with the one in `listen`: a reader that is not counted here yet will see the new
        // snapshot.
        fence(Ordering::SeqCst);
        if self.changed.total_listeners() > 0 {
            self.changed.notify(usize::MAX);
        }
    }

    /// Replaces the snapshot and returns the previous one, so that the caller can free it after
    /// unlocking the engine: freeing the description takes time proportional to the number of
    /// servers.
    #[must_use = "the previous snapshot is freed once the engine is unlocked"]
    pub(crate) fn swap(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        self.snapshot.swap(snapshot)
    }
}

/// A borrowed [`Snapshot`], loaded without a lock or an allocation.
///
/// Do not hold it across an await: only the first few guards of each thread are cheap. To keep the
/// state, clone the snapshot's [`description`](Snapshot::description).
#[derive(Debug)]
pub struct SnapshotGuard(pub(crate) Guard<Arc<Snapshot>>);

impl Deref for SnapshotGuard {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

/// The selections that have published their started event, but not yet their last event.
///
/// Closing the topology ends these selections (K-7), so that `TopologyClosed` is the last event
/// even if the application holds futures that it does not poll.
///
/// A selection's events are published under this lock, so none of them follows the failed event
/// that closing publishes. This lock may be taken while the topology is locked, but the topology
/// must not be locked while this lock is held. It is taken only for selections whose events a sink
/// wants.
#[derive(Debug, Default)]
pub(crate) struct PendingSelections(Mutex<Unended>);

#[derive(Debug, Default)]
struct Unended {
    selections: BTreeMap<u64, Started>,
    /// The number of the newest selection.
    last: u64,
    closed: bool,
}

pub(crate) type Started = (Arc<Selection>, Instant);

impl PendingSelections {
    /// Publishes a selection's started event, and returns the selection's number; `None` if the
    /// topology is closed.
    pub(crate) fn begin(&self, started: Started, publish: impl FnOnce()) -> Option<u64> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.last += 1;
        let number = state.last;
        state.selections.insert(number, started);
        publish();
        Some(number)
    }

    /// Publishes an intermediate event of a selection, unless the selection has ended.
    pub(crate) fn step(&self, number: u64, publish: impl FnOnce()) {
        let state = self.lock();
        if state.selections.contains_key(&number) {
            publish();
        }
    }

    /// Publishes a selection's last event, unless the selection has ended. Returns whether the
    /// event was published.
    pub(crate) fn end(&self, number: u64, publish: impl FnOnce()) -> bool {
        let mut state = self.lock();
        let open = state.selections.remove(&number).is_some();
        if open {
            publish();
        }
        open
    }

    /// Publishes a failed event for each selection, oldest first, and refuses new selections.
    pub(crate) fn close(
        &self,
        events: &EventQueue,
        description: &Arc<TopologyDescription>,
        now: Instant,
    ) {
        let mut state = self.lock();
        state.closed = true;
        for (selection, started) in mem::take(&mut state.selections).into_values() {
            let failed = EventKind::ServerSelectionFailed {
                selection,
                description: Arc::clone(description),
                reason: SelectionFailure::Closed,
                failure: CLOSED.into(),
                duration: now.since(started),
            };
            events.push(now, failed);
        }
    }

    /// Locks the state. Poisoning is ignored, because a panic while publishing leaves the state
    /// consistent.
    fn lock(&self) -> MutexGuard<'_, Unended> {
        lock(&self.0)
    }
}

/// The error message of a selection that fails because the topology is closed.
pub(crate) const CLOSED: &str = "the topology is closed: start a new one to select servers";
