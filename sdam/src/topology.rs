//! The handle that applications hold.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use futures::future;
use sdam_core::{
    app_error::{AppError, ErrorOutcome},
    error::ServerError,
    hello::{Handshake, Hello},
    ids::{Generation, ObjectId, ServerId},
    machine::Input,
    options::{Options, Warning},
};
use sdam_events::queue::EventQueue;
use sdam_select::{criteria::Criteria, explain::Explanation};
use sdam_transport::handshake::{InvalidMetadata, Library};

use crate::{
    cell::TopologyCell,
    error::SelectionError,
    select::Limit,
    selected::Selected,
    service::ServiceConnection,
    snapshot::{Snapshot, SnapshotGuard},
    watch::Watch,
};

/// A deployment that is being watched.
///
/// Cloning it is a reference count. When the last clone is dropped, or [`close`](Self::close) is
/// called, monitoring ends.
#[derive(Clone)]
pub struct Topology {
    handle: Arc<Handle>,
}

/// What the user holds; tasks hold the cell, so there is no cycle.
struct Handle {
    cell: Arc<TopologyCell>,
}

impl Topology {
    pub(crate) fn new(cell: Arc<TopologyCell>) -> Self {
        Self {
            handle: Arc::new(Handle { cell }),
        }
    }

    pub(crate) fn cell(&self) -> &Arc<TopologyCell> {
        &self.handle.cell
    }

    /// The id that all events of this topology carry.
    pub fn id(&self) -> ObjectId {
        self.cell().events.topology()
    }

    /// The options it was started with.
    pub fn options(&self) -> &Options {
        &self.cell().options
    }

    /// What the user should know about the options: what was worked around in the connection
    /// string, and what has no effect on a client with background monitors. Each was also
    /// [published](sdam_core::event::EventKind::ConfigWarning) when the topology opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.cell().warnings
    }

    /// Appends a library that wraps this one to what connections tell servers about the client, and
    /// tells whether that changed anything: one that has been appended before is not appended
    /// again. Only connections that are opened later say so (Handshake: "Supporting wrapping
    /// libraries").
    ///
    /// # Errors
    ///
    /// One of the library's texts contains a `|`; then nothing is changed.
    pub fn append_metadata(&self, library: Library) -> Result<bool, InvalidMetadata> {
        self.cell().introduction.append(library)
    }

    /// What a connection that is opened now says in its first hello; pools introduce theirs with
    /// the same.
    pub fn handshake(&self) -> Arc<Handshake> {
        self.cell().introduction.handshake()
    }

    /// What is known now. Takes no lock and allocates nothing.
    pub fn snapshot(&self) -> SnapshotGuard {
        SnapshotGuard(self.cell().snapshot().load())
    }

    /// The events that have happened and not been delivered yet.
    pub fn events(&self) -> &Arc<EventQueue> {
        &self.cell().events
    }

    /// How many selections are waiting for a server now.
    pub fn waiters(&self) -> usize {
        self.cell().demand.waiters()
    }

    /// Selects a server if one is suitable now. Takes no lock, allocates nothing, never waits.
    ///
    /// # Errors
    ///
    /// If waiting would be in vain: the topology is incompatible or closed, its runtime has shut
    /// down, or the criteria can never be met.
    pub fn try_select(&self, criteria: &Criteria) -> Result<Option<Selected>, SelectionError> {
        self.cell().try_select(criteria)
    }

    /// Selects a server, waiting up to `serverSelectionTimeoutMS` for a suitable one, or up to
    /// `timeoutMS` if the connection string has one that is shorter and not zero.
    ///
    /// While anybody waits, servers are checked every 500 ms. A time-out of zero means not to wait.
    ///
    /// # Errors
    ///
    /// As [`try_select`](Self::try_select), and when the time has passed.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; nothing is left behind.
    pub async fn select(&self, criteria: &Criteria) -> Result<Selected, SelectionError> {
        let cell = self.cell();
        cell.select(criteria, cell.limit).await
    }

    /// Like [`select`](Self::select), but waits for `timeout` at most, and never longer than
    /// `serverSelectionTimeoutMS`. It takes the place of the client's `timeoutMS`, so a driver
    /// passes what is left of the time of an operation.
    ///
    /// # Errors
    ///
    /// As [`select`](Self::select).
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; nothing is left behind.
    pub async fn select_within(
        &self,
        criteria: &Criteria,
        timeout: Duration,
    ) -> Result<Selected, SelectionError> {
        let cell = self.cell();
        cell.select(criteria, Limit::of_call(&cell.options, timeout))
            .await
    }

    /// What a selection would make of every server that is known now, and why.
    ///
    /// For people and logs: it allocates, and calls selectors as a selection does.
    pub fn explain(&self, criteria: &Criteria) -> Explanation {
        self.cell().explain(criteria)
    }

    /// Waits until `ready` yields a value for what is known, for `timeout` at most.
    ///
    /// `None` if the time has passed or the topology was closed. Unlike a selection it does not
    /// hasten any check.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; nothing is left behind.
    pub async fn wait_for<T>(
        &self,
        ready: impl FnMut(&Snapshot) -> Option<T>,
        timeout: Duration,
    ) -> Option<T> {
        let cell = self.cell();
        cell.wait_for(ready, Some(cell.now() + timeout)).await
    }

    /// A stream of ever newer snapshots, beginning with the present one.
    pub fn watch(&self) -> Watch {
        Watch::new(Arc::clone(self.cell()))
    }

    /// Reports what an operation or a connection pool has met on `server`.
    ///
    /// Whatever a command's reply or a broken connection says may be reported; what matters is
    /// sorted out here, and has taken effect when the call returns.
    /// [`TransportError::cause`](sdam_transport::error::TransportError::cause) says what a failed
    /// connection is reported as.
    /// Must not be called with a lock held that the pool's own `ready`, `clear` or `close` take.
    pub fn handle_error(&self, server: ServerId, error: AppError<'_>) -> ErrorOutcome {
        self.cell().apply_error(server, error)
    }

    /// Reports the reply to the handshake of a new pooled connection, a BSON document, as soon as it
    /// is there and before authentication.
    ///
    /// Behind a load balancer, and only there, the connection is counted for the service that the
    /// reply names, and what is returned says its generation; give that back with
    /// [`handle_service_connection_closed`](Self::handle_service_connection_closed).
    /// A closed topology counts nothing: close the connection.
    /// Must not be called with a lock held that the pool's own `ready`, `clear` or `close` take.
    ///
    /// # Errors
    ///
    /// If the reply is no successful hello: report that with [`handle_error`](Self::handle_error),
    /// as [`Cause::Reply`](sdam_core::app_error::Cause::Reply), and close the connection. If it names
    /// no service, though `loadBalanced=true` was configured: just close the connection.
    pub fn handle_handshake(
        &self,
        server: ServerId,
        generation: Generation,
        reply: &[u8],
    ) -> Result<Option<ServiceConnection>, ServerError> {
        let hello = Hello::parse(reply)?;
        let balanced = self.options().load_balanced;
        let service = balanced
            .then(|| hello.load_balanced_service())
            .transpose()?;
        let current = self
            .cell()
            .apply_handshake(server, generation, hello, reply);
        Ok(service
            .zip(current)
            .map(|(service, generation)| ServiceConnection {
                server,
                service,
                generation,
            }))
    }

    /// Reports that a connection to a service behind a load balancer is closed, or has been handed
    /// to a task that closes it.
    ///
    /// With its last connection the topology forgets the service (CMAP: "Load Balancer Mode").
    /// Report the error that a connection has met before its end, or it is
    /// [stale](ErrorOutcome::Stale).
    /// Must not be called with a lock held that the pool's own `ready`, `clear` or `close` take.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "no connection is reported as closed twice"
    )]
    pub fn handle_service_connection_closed(&self, connection: ServiceConnection) {
        let ServiceConnection {
            server,
            service,
            generation,
        } = connection;
        self.cell().apply(Input::ServiceConnectionClosed {
            server,
            service,
            generation,
        });
    }

    /// Asks every monitor to check soon, no sooner than 500 ms after its last check.
    pub fn request_check(&self) {
        self.cell().request_checks();
    }

    /// How long [`close`](Self::close) waits for a sink that does not return.
    pub const DELIVERY_PATIENCE: Duration = Duration::from_secs(2);

    /// Ends monitoring, fails waiting selections, and waits until no task and no socket of this
    /// topology is left and the last event has been delivered. Events tell of the failures before
    /// `TopologyClosed`, even of selections whose futures are not polled any more.
    ///
    /// A sink that hangs is waited for no longer than
    /// [`DELIVERY_PATIENCE`](Self::DELIVERY_PATIENCE); if it ever returns, it is given the rest.
    /// Look-ups of host names are not waited for. Some runtimes make them on threads of their own,
    /// which nothing can interrupt: tokio's waits for those when it is dropped, but not in its
    /// `shutdown_background`.
    ///
    /// # Cancel safety
    ///
    /// Monitoring has ended even if the future is dropped after it was polled once.
    pub async fn close(&self) {
        let cell = self.cell();
        cell.shut_down();
        cell.monitors.finished().await;
        let patience = cell.now() + Self::DELIVERY_PATIENCE;
        let patience = cell.runtime.io.clock.sleep_until(patience);
        future::select(pin!(cell.dispatchers.finished()), patience).await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.cell.shut_down();
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
