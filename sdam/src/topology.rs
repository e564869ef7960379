//! The topology handle for applications, and the stream of its snapshots.

pub(crate) mod builder;
pub(crate) mod select;
pub(crate) mod tasks;

use std::{
    any::Any,
    marker::PhantomData,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    future::{self, Either, Future},
    stream::Stream,
};
use sdam_core::{
    address::ServerAddress,
    deployment::Input,
    hello::HelloRequest,
    ids::{ObjectId, ServerId},
    options::{ConfigError, Options, Warning},
};
use sdam_events::queue::PendingEvents;
use sdam_select::{criteria::Criteria, explain::Explanation};
use sdam_transport::{
    handshake::DriverInfo,
    pool::{NoPools, PoolHandle, PoolHost, Reporter},
};

pub use self::builder::TopologyBuilder;
use crate::{
    engine::{
        Background, Engine,
        snapshot::{ServerState, Snapshot, SnapshotGuard},
    },
    select::{Limit, error::SelectionError, selected::SelectedServer},
    sync::{EventListener, listen},
};

/// A deployment whose servers are monitored in the background.
///
/// `P` is the type of each server's pool, see [`TopologyBuilder::pools`].
///
/// Cloning only increments a reference count. Monitoring ends when the last clone is dropped or
/// [`close`](Self::close) is called.
///
/// A process created by `fork` inherits the sockets but not the threads: start the topology after
/// the fork.
///
/// ```no_run
/// use sdam::{Criteria, Topology};
///
/// # #[cfg(feature = "runtime-tokio")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let topology = Topology::builder("mongodb://db-0.example.com/?replicaSet=rs0")?
///     .start(sdam::runtime::tokio()?)?;
/// let primary = topology.select(&Criteria::write()).await?;
/// println!("write to {}", primary.address());
/// topology.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Topology<P = NoPools> {
    handle: Arc<Handle>,
    pool: PhantomData<fn() -> P>,
}

/// The user's handle. Tasks and pools hold only the engine, so they end when the last handle
/// is dropped.
struct Handle {
    engine: Arc<Engine>,
}

/// A [`Topology`] that does not keep monitoring alive.
pub struct WeakTopology<P = NoPools> {
    handle: Weak<Handle>,
    pool: PhantomData<fn() -> P>,
}

impl Topology {
    /// The maximum time that [`close`](Self::close) waits for operations in progress, or for a sink
    /// that does not return.
    pub const DELIVERY_PATIENCE: Duration = Duration::from_secs(2);

    /// Creates a builder from a connection string.
    ///
    /// ```
    /// # fn main() -> Result<(), sdam::ConfigError> {
    /// let builder = sdam::Topology::builder("mongodb://a.example.com,b.example.com/?replicaSet=rs")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the connection string is malformed or contradicts itself; the error names the option.
    /// Also if it is a `mongodb+srv` string, whose hosts have to be looked up: pass the
    /// result of [`resolve`](crate::resolve) to [`TopologyBuilder::new`].
    pub fn builder(uri: &str) -> Result<TopologyBuilder, ConfigError> {
        Ok(TopologyBuilder::new(Options::parse(uri)?))
    }
}

/// Methods for selection.
impl<P: PoolHandle> Topology<P> {
    /// Selects a server. Waits for a suitable one up to `serverSelectionTimeoutMS`, or up to
    /// `timeoutMS` if that is configured, shorter and not zero.
    ///
    /// While selections wait, servers are checked every 500 ms. With a timeout of zero, the
    /// selection does not wait.
    ///
    /// ```no_run
    /// # async fn example(topology: &sdam::Topology) -> Result<(), Box<dyn std::error::Error>> {
    /// let server = topology.select(&sdam::Criteria::write()).await?;
    /// println!("{} is {}", server.address(), server.server_type());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_select`](Self::try_select); also if the timeout expires.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time without side effects.
    pub async fn select(&self, criteria: &Criteria) -> Result<SelectedServer<P>, SelectionError> {
        let engine = self.engine();
        let selected = engine.select(criteria, Limit::configured(&engine.common.options)).await?;
        Ok(SelectedServer::new(selected))
    }

    /// Selects a server like [`select`](Self::select), but waits for at most `timeout`, and never
    /// longer than `serverSelectionTimeoutMS`. The timeout replaces the client's `timeoutMS`, so a
    /// driver should pass the remaining time of the operation.
    ///
    /// # Errors
    ///
    /// As [`select`](Self::select).
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time without side effects.
    pub async fn select_within(
        &self,
        criteria: &Criteria,
        timeout: Duration,
    ) -> Result<SelectedServer<P>, SelectionError> {
        let engine = self.engine();
        let limit = Limit::of_call(&engine.common.options, timeout);
        Ok(SelectedServer::new(engine.select(criteria, limit).await?))
    }

    /// Selects a server if one is suitable now. Takes no lock, allocates nothing and never waits.
    ///
    /// # Errors
    ///
    /// If no selection can succeed: the topology is incompatible or closed, its runtime has shut
    /// down, or the criteria are invalid.
    #[inline]
    pub fn try_select(
        &self,
        criteria: &Criteria,
    ) -> Result<Option<SelectedServer<P>>, SelectionError> {
        Ok(self.engine().try_select(criteria)?.map(SelectedServer::new))
    }

    /// Explains for each known server why a selection would choose or reject it.
    ///
    /// Meant for diagnostics and logs: it allocates, and calls selectors as a selection does.
    pub fn explain(&self, criteria: &Criteria) -> Explanation {
        self.engine().explain(criteria)
    }
}

/// Methods for reading the current state.
impl<P: PoolHandle> Topology<P> {
    /// Returns the current snapshot. Takes no lock and allocates nothing.
    ///
    /// ```no_run
    /// # async fn example(topology: &sdam::Topology) -> Result<(), Box<dyn std::error::Error>> {
    /// for server in topology.snapshot().servers() {
    ///     println!("{}: {} in use", server.description(), server.operation_count());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> SnapshotGuard {
        SnapshotGuard(self.engine().published.load())
    }

    /// Returns a stream of snapshots, beginning with the current one.
    ///
    /// ```no_run
    /// # async fn example(topology: &sdam::Topology) -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::StreamExt;
    ///
    /// let mut snapshots = topology.watch();
    /// while let Some(snapshot) = snapshots.next().await {
    ///     println!("{}", snapshot.description());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self) -> TopologyWatch {
        TopologyWatch::new(Arc::clone(self.engine()))
    }

    /// Waits for at most `timeout` until `ready` returns a value for a snapshot.
    ///
    /// Returns `None` if the timeout has expired or the topology was closed. Unlike a selection,
    /// it requests no checks.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time without side effects.
    pub async fn wait_for<T>(
        &self,
        ready: impl FnMut(&Snapshot) -> Option<T>,
        timeout: Duration,
    ) -> Option<T> {
        let engine = self.engine();
        engine.wait_for(ready, Some(engine.now() + timeout)).await
    }

    /// Returns a view of the undelivered events.
    pub fn events(&self) -> PendingEvents<'_> {
        self.engine().events.pending()
    }

    /// Returns the number of selections that are waiting for a server.
    pub fn waiters(&self) -> usize {
        self.engine().waiters.count()
    }

    /// Returns the topology's id, which all its events carry.
    pub fn id(&self) -> ObjectId {
        self.engine().events.topology()
    }

    /// Returns the options that the topology was started with.
    pub fn options(&self) -> &Options {
        &self.engine().common.options
    }

    /// Returns the configuration warnings. They concern problems in the connection string that were
    /// worked around, and options that have no effect on a client with background monitors. Each
    /// was also [published](sdam_core::event::EventKind::ConfigWarning) when the topology opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.engine().common.warnings
    }
}

/// Methods for connections and pools.
impl<P: PoolHandle> Topology<P> {
    /// Returns the handle through which errors and handshakes of connections to `server` are
    /// reported, for programs that connect without a pool factory: pools get theirs with
    /// [`PoolContext`](sdam_transport::pool::PoolContext).
    ///
    /// ```no_run
    /// use sdam::{error::{ErrorReport, Stage}, Error, SelectedServer, Topology};
    ///
    /// fn report(topology: &Topology, server: &SelectedServer, error: &std::io::Error) {
    ///     let error = Error::network(Stage::Operation, error.to_string());
    ///     topology.reporter(server.id()).report(ErrorReport::new(server.generation(), error));
    /// }
    /// ```
    pub fn reporter(&self, server: ServerId) -> Reporter {
        let host: Weak<dyn PoolHost> = Arc::downgrade(self.engine()) as _;
        Reporter::new(server, host)
    }

    /// Returns the pool of a server in a snapshot, for work on all pools, such as filling them
    /// before the first operation, or ending cursors before the topology is closed. Returns `None`
    /// if the pool factory panicked.
    ///
    /// ```no_run
    /// use sdam::{PoolHandle, Topology};
    ///
    /// fn pools<P: PoolHandle + Clone>(topology: &Topology<P>) -> Vec<P> {
    ///     let snapshot = topology.snapshot();
    ///     snapshot.servers().filter_map(|server| topology.pool(&server).cloned()).collect()
    /// }
    /// ```
    pub fn pool<'s>(&self, server: &ServerState<'s>) -> Option<&'s P> {
        (server.pool()? as &dyn Any).downcast_ref()
    }

    /// Applies the hosts from an SRV record look-up, for drivers that poll SRV records themselves,
    /// on a runtime without a resolver (Polling SRV Records for mongos Discovery).
    ///
    /// The hosts have to be [allowed](sdam_core::options::Srv::allows). If
    /// [`Srv::max_hosts`](sdam_core::options::Srv::max_hosts) of [`Options::srv`] is smaller than
    /// their number, they are [sampled](sdam_core::topology::TopologyDescription::sample_hosts).
    /// Servers that are not among the resulting hosts leave the topology, and new ones join it.
    /// Nothing happens if there are no hosts, or if the topology type is neither Unknown nor
    /// Sharded. All effects have run when the call returns. Must not be called while holding a lock
    /// that the pool's `ready`, `clear` or `close` takes.
    pub fn handle_srv_hosts(&self, hosts: &[ServerAddress]) {
        self.engine().handle(Input::Hosts(hosts.into()));
    }

    /// Requests a check of every server. Each check begins no sooner than 500 ms after the server's
    /// previous one.
    pub fn request_check(&self) {
        self.engine().request_checks();
    }

    /// Returns the first message of a new connection, with the client metadata, the declared API
    /// and the framing that the options require.
    pub fn hello(&self) -> HelloRequest {
        self.engine().hello()
    }

    /// Appends a wrapping library to the client metadata, and returns false if it was already
    /// appended. Only connections opened later send it (Handshake: "Supporting wrapping
    /// libraries").
    ///
    /// # Errors
    ///
    /// If one of the library's strings contains a `|`, or the metadata is a [driver's
    /// document](TopologyBuilder::client_document); the metadata is then unchanged.
    pub fn append_metadata(&self, library: DriverInfo) -> Result<bool, ConfigError> {
        self.engine().common.metadata.append(library)
    }
}

/// Methods for closing.
impl<P: PoolHandle> Topology<P> {
    /// Returns a handle that does not keep monitoring alive.
    pub fn downgrade(&self) -> WeakTopology<P> {
        WeakTopology { handle: Arc::downgrade(&self.handle), pool: PhantomData }
    }

    /// Ends monitoring, fails waiting selections, and waits until all tasks of this topology have
    /// ended, its sockets are closed, and the last event has been delivered. The failures are
    /// published before `TopologyClosed`, even those of selections whose futures are no longer
    /// polled.
    ///
    /// If the sinks receive the events of connections, check-outs or commands, waits for those in
    /// progress to end, so that their last events precede `TopologyClosed`. After
    /// [`DELIVERY_PATIENCE`](Topology::DELIVERY_PATIENCE), publishes `TopologyClosed` without the
    /// missing events, and counts these as [dropped](PendingEvents::dropped).
    ///
    /// The same limit applies to a hanging sink, and to a pool's task that does not end. If the
    /// sink ever returns, it receives the remaining events. The call does not wait for DNS look-ups
    /// of host names. Some runtimes make them on separate threads that cannot be interrupted: a
    /// tokio runtime waits for these threads when it is dropped, but not in its
    /// `shutdown_background`.
    ///
    /// # Cancel safety
    ///
    /// Monitoring has ended even if the future is dropped after its first poll. `TopologyClosed` is
    /// then published when the last operation in progress has ended, in the same way as when the
    /// last handle is dropped.
    pub async fn close(&self) {
        let engine = self.engine();
        engine.shut_down();
        let Background::Tasks(tasks) = &engine.background else {
            return;
        };
        tasks.monitors.finished().await;
        let patience = || {
            let end = engine.now() + Topology::<NoPools>::DELIVERY_PATIENCE;
            engine.common.backend.clock.sleep_until(end)
        };
        let rest = future::join(tasks.dispatchers.finished(), tasks.pools.finished());
        let is_late = matches!(future::select(pin!(rest), patience()).await, Either::Right(_));
        // J-26: connections or operations may still be in progress.
        if is_late && engine.events.close() {
            future::select(pin!(tasks.dispatchers.finished()), patience()).await;
        }
    }
}

impl<P> Topology<P> {
    fn new(engine: Arc<Engine>) -> Self {
        Self { handle: Arc::new(Handle { engine }), pool: PhantomData }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }
}

impl<P> WeakTopology<P> {
    /// Returns the topology, unless its last handle was dropped.
    pub fn upgrade(&self) -> Option<Topology<P>> {
        Some(Topology { handle: self.handle.upgrade()?, pool: PhantomData })
    }
}

impl<P> Clone for Topology<P> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), pool: PhantomData }
    }
}

impl<P> Clone for WeakTopology<P> {
    fn clone(&self) -> Self {
        Self { handle: Weak::clone(&self.handle), pool: PhantomData }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.shut_down();
    }
}

sdam_core::opaque!(Topology<P>, |this| id: this.engine().events.topology());

sdam_core::opaque!(WeakTopology<P>);

/// A stream of snapshots, beginning with the current one.
///
/// Each snapshot is newer than the one before. A slow reader misses some snapshots. The stream ends
/// after the snapshot of the closed topology.
///
/// # Cancel safety
///
/// The future of the next snapshot may be dropped at any time; no snapshot is lost.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct TopologyWatch {
    engine: Arc<Engine>,
    /// The version of the last snapshot returned.
    seen: Option<u64>,
    listener: Option<EventListener>,
    ended: bool,
}

impl TopologyWatch {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, seen: None, listener: None, ended: false }
    }

    fn newer(&mut self) -> Option<Arc<Snapshot>> {
        let snapshot = self.engine.published.load();
        if self.seen.is_some_and(|seen| seen >= snapshot.version) {
            return None;
        }
        self.seen = Some(snapshot.version);
        self.ended = snapshot.closed;
        Some(Arc::clone(&snapshot))
    }
}

impl Stream for TopologyWatch {
    type Item = Arc<Snapshot>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Arc<Snapshot>>> {
        let this = &mut *self;
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(listener) = &mut this.listener {
                if Pin::new(listener).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.listener = None;
            }
            if let Some(snapshot) = this.newer() {
                return Poll::Ready(Some(snapshot));
            }
            // Starts to listen before reading the snapshot again, so that no change is missed.
            this.listener = Some(listen(&this.engine.published.changed));
            if let Some(snapshot) = this.newer() {
                return Poll::Ready(Some(snapshot));
            }
        }
    }
}
