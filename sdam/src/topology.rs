//! The topology handle of applications.

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

/// A deployment whose servers are monitored in the background.
///
/// Cloning only increments a reference count. Monitoring ends when the last clone is dropped or
/// [`close`](Self::close) is called.
#[derive(Clone)]
pub struct Topology {
    handle: Arc<Handle>,
}

/// The user's handle. Tasks hold only the cell, so there is no reference cycle.
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

    /// Returns the id that all events of this topology carry.
    pub fn id(&self) -> ObjectId {
        self.cell().events.topology()
    }

    /// Returns the options that the topology was started with.
    pub fn options(&self) -> &Options {
        &self.cell().options
    }

    /// Returns the configuration warnings: workarounds for the connection string, and options
    /// without effect on a client with background monitors. Each was also
    /// [published](sdam_core::event::EventKind::ConfigWarning) when the topology opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.cell().warnings
    }

    /// Appends a wrapping library to the client metadata and returns whether that changed
    /// anything: a library that was appended before is not appended again. Only connections that
    /// are opened later send it (Handshake: "Supporting wrapping libraries").
    ///
    /// # Errors
    ///
    /// If one of the library's texts contains a `|`; then nothing is changed.
    pub fn append_metadata(&self, library: Library) -> Result<bool, InvalidMetadata> {
        self.cell().introduction.append(library)
    }

    /// Returns the handshake of the first hello of a connection that is opened now. Pools use it
    /// for their connections, too.
    pub fn handshake(&self) -> Arc<Handshake> {
        self.cell().introduction.handshake()
    }

    /// Returns the current snapshot. Takes no lock and allocates nothing.
    pub fn snapshot(&self) -> SnapshotGuard {
        SnapshotGuard(self.cell().snapshot().load())
    }

    /// Returns the queue of events that are not delivered yet.
    pub fn events(&self) -> &Arc<EventQueue> {
        &self.cell().events
    }

    /// Returns the number of selections that are waiting for a server.
    pub fn waiters(&self) -> usize {
        self.cell().demand.waiters()
    }

    /// Selects a server if one is suitable now. Takes no lock, allocates nothing, never waits.
    ///
    /// # Errors
    ///
    /// If no selection can succeed: the topology is incompatible or closed, its runtime has shut
    /// down, or the criteria are invalid.
    pub fn try_select(&self, criteria: &Criteria) -> Result<Option<Selected>, SelectionError> {
        self.cell().try_select(criteria)
    }

    /// Selects a server. Waits for a suitable one up to `serverSelectionTimeoutMS`, or up to
    /// `timeoutMS` if that is configured, shorter and not zero.
    ///
    /// While selections wait, servers are checked every 500 ms. A timeout of zero means not to
    /// wait.
    ///
    /// # Errors
    ///
    /// As [`try_select`](Self::try_select), and when the timeout expires.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time without side effects.
    pub async fn select(&self, criteria: &Criteria) -> Result<Selected, SelectionError> {
        let cell = self.cell();
        cell.select(criteria, cell.limit).await
    }

    /// Selects a server like [`select`](Self::select), but waits for at most `timeout`, and never
    /// longer than `serverSelectionTimeoutMS`. The timeout replaces the client's `timeoutMS`, so a
    /// driver passes what is left of an operation's time.
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
    ) -> Result<Selected, SelectionError> {
        let cell = self.cell();
        cell.select(criteria, Limit::of_call(&cell.options, timeout))
            .await
    }

    /// Explains for each known server why a selection would choose or reject it.
    ///
    /// Meant for diagnostics and logs: it allocates, and calls selectors as a selection does.
    pub fn explain(&self, criteria: &Criteria) -> Explanation {
        self.cell().explain(criteria)
    }

    /// Waits until `ready` yields a value for a snapshot, for at most `timeout`.
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
        let cell = self.cell();
        cell.wait_for(ready, Some(cell.now() + timeout)).await
    }

    /// Returns a stream of ever newer snapshots, beginning with the current one.
    pub fn watch(&self) -> Watch {
        Watch::new(Arc::clone(self.cell()))
    }

    /// Reports an application error of an operation or a connection pool on `server`.
    ///
    /// Any reply to a command and any connection error may be reported; irrelevant ones are
    /// ignored. All effects have run when the call returns.
    /// [`TransportError::app_error`](sdam_transport::error::TransportError::app_error) returns what
    /// to report for a failed connection.
    /// Must not be called with a lock held that the pool's own `ready`, `clear` or `close` take.
    pub fn handle_error(&self, server: ServerId, error: &AppError<'_>) -> ErrorOutcome {
        self.cell().apply_error(server, error)
    }

    /// Reports the reply to the handshake of a new pooled connection, a BSON document, as soon as
    /// it arrives and before authentication.
    ///
    /// Behind a load balancer, and only there, the connection is counted for the service that the
    /// reply names. The returned value holds its generation; pass it to
    /// [`handle_service_connection_closed`](Self::handle_service_connection_closed) later.
    /// A closed topology counts nothing: close the connection.
    /// Must not be called with a lock held that the pool's own `ready`, `clear` or `close` take.
    ///
    /// # Errors
    ///
    /// If the reply is not a successful hello: report it with
    /// [`handle_error`](Self::handle_error), as
    /// [`Cause::Reply`](sdam_core::app_error::Cause::Reply), and close the connection. If it names
    /// no service, although `loadBalanced=true` was configured: just close the connection.
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
    /// The topology forgets the service with its last connection (CMAP: "Load Balancer Mode").
    /// Report the connection's error before its closing, or the error is
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

    /// Requests a check from every monitor, no sooner than 500 ms after its last check.
    pub fn request_check(&self) {
        self.cell().request_checks();
    }

    /// The time that [`close`](Self::close) waits for a sink that does not return.
    pub const DELIVERY_PATIENCE: Duration = Duration::from_secs(2);

    /// Ends monitoring, fails waiting selections, and waits until all tasks and sockets of this
    /// topology are gone and the last event has been delivered. The failures are published before
    /// `TopologyClosed`, even those of selections whose futures are no longer polled.
    ///
    /// Waits for a hanging sink no longer than [`DELIVERY_PATIENCE`](Self::DELIVERY_PATIENCE). If
    /// the sink ever returns, it receives the remaining events.
    /// DNS look-ups of host names are not waited for. Some runtimes make them on separate threads
    /// that cannot be interrupted: tokio waits for those when it is dropped, but not in its
    /// `shutdown_background`.
    ///
    /// # Cancel safety
    ///
    /// Monitoring has ended even if the future is dropped after its first poll.
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
