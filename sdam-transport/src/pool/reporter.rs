use std::{
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorOutcome},
    event::{EventPublisher, NoEvents},
    hello::{HelloFields, HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    options::{Detector, Options},
    report::ErrorReport,
    time::Instant,
};

use super::Authenticator;
use crate::{clock::Clock, race, runtime::Backend, spawn::Spawner};

/// The context of a new pool: its server, the runtime, and a handle to report errors to the
/// topology.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolContext {
    /// The id of the server. A server that leaves the topology and returns gets a new id and a new
    /// pool.
    pub server: ServerId,
    /// The address of the server.
    pub address: ServerAddress,
    /// The options of the topology, which include those of [pools](Options::pool).
    pub options: Arc<Options>,
    /// The generation of the connections that are opened first.
    pub generation: Generation,
    /// Reports the pool's errors and handshakes. [`create`](super::PoolFactory::create) may store
    /// it, but must not call it.
    pub reporter: Reporter,
    /// The clock and the transport of the topology.
    pub backend: Backend,
    /// Spawns background tasks of the pool; `None` in single-threaded mode, which has no tasks.
    pub spawner: Option<Arc<dyn Spawner>>,
    /// Receives the pool's events about itself and its connections. The topology publishes
    /// `PoolReady` and `PoolCleared` itself, before it calls the pool, so events that the pool
    /// publishes during the call come after them.
    pub events: Arc<dyn EventPublisher>,
    /// Additional fields, such as `compression`, in the handshake of connections that
    /// [`establish`](Self::establish) opens. The server's answer to these fields is in
    /// [`Established::hello_reply`](super::Established::hello_reply).
    pub hello_fields: Option<HelloFields>,
    /// Authenticates the connections that [`establish`](Self::establish) opens; `None` if the
    /// topology has no authenticator.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// The seed of the pool's random choices, which is different for each pool.
    pub seed: u64,
}

impl PoolContext {
    /// Returns the context of a pool without a topology and with the default options. Its fields
    /// can then be set one by one.
    pub fn new(server: ServerId, address: ServerAddress, backend: Backend) -> Self {
        Self {
            server,
            options: Arc::new(Options::new(vec![address.clone()])),
            address,
            generation: Generation::FIRST,
            reporter: Reporter { server, host: None, trial: None },
            backend,
            spawner: None,
            events: Arc::new(NoEvents),
            hello_fields: None,
            authenticator: None,
            seed: server.as_u64(),
        }
    }
}

/// A weak handle through which the pool of one server calls its topology.
///
/// Cloning is cheap. The handle keeps neither the topology nor its monitors alive. Once the
/// topology is closed or dropped, or the server has left it, every call treats the server as
/// unknown.
///
/// # Contract
///
/// Every method except [`server`](Self::server) may lock the topology, which then calls
/// [`PoolHandle`](super::PoolHandle) methods of any pool. Call the methods of the reporter without
/// holding a lock that methods of [`PoolHandle`](super::PoolHandle) take, and never within those
/// methods or within [`PoolFactory::create`](super::PoolFactory::create).
#[derive(Clone)]
pub struct Reporter {
    server: ServerId,
    host: Option<Weak<dyn PoolHost>>,
    /// The time after which an answer is late, and a flag that is true while the detector waits for
    /// an answer.
    trial: Option<(Duration, Arc<AtomicBool>)>,
}

impl Reporter {
    /// Returns the handle for a server of the topology `host`.
    pub fn new(server: ServerId, host: Weak<dyn PoolHost>) -> Self {
        Self { server, host: Some(host), trial: None }
    }

    /// Sets the detector of the topology. `asked` is true while the detector is asking whether the
    /// server answers.
    #[must_use]
    pub fn with_detector(mut self, detector: Detector, asked: Arc<AtomicBool>) -> Self {
        self.trial = Some((detector.floor, asked));
        self
    }

    /// Returns the id of the pool's server.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Returns whether the topology still exists.
    pub fn is_attached(&self) -> bool {
        self.host().is_some()
    }

    /// Reports an error on a connection to the server. Errors that do not concern the topology are
    /// ignored. All effects have been applied when the call returns (SDAM: "Error handling").
    pub fn handle_error(&self, error: &ErrorReport) -> ErrorOutcome {
        self.host()
            .map_or(ErrorOutcome::UnknownServer, |host| host.handle_error(self.server, error))
    }

    /// [Reports](Self::handle_error) the error of `report`, and returns the error with its
    /// [outcome](Error::outcome).
    pub fn report(&self, report: ErrorReport) -> Error {
        let outcome = self.handle_error(&report);
        report.error.with_outcome(outcome)
    }

    /// Reports the reply to the handshake of a new connection of `generation`, as a BSON document or
    /// already parsed, as soon as it arrives and before authentication.
    ///
    /// Behind a load balancer, this also counts the connection for the service that the reply
    /// names, and returns the counted connection with its generation. Otherwise it returns `None`.
    ///
    /// # Errors
    ///
    /// If the reply is not a successful hello: [report](Self::handle_error) the error and close the
    /// connection. If the reply names no service although `loadBalanced=true` was configured: only
    /// close the connection.
    pub fn handle_handshake(
        &self,
        generation: Generation,
        reply: impl Into<HelloReply>,
    ) -> Result<Option<ServiceConnection>, Error> {
        self.host()
            .map_or(Ok(None), |host| host.handle_handshake(self.server, generation, reply.into()))
    }

    /// Reports that a connection to a service behind a load balancer is closed, or was handed to a
    /// task that closes it.
    ///
    /// The topology forgets a service when its last connection is closed (CMAP: "Load Balancer
    /// Mode"). Report an error of the connection before its closing, because otherwise the error is
    /// [stale](ErrorOutcome::Stale).
    pub fn handle_service_connection_closed(&self, connection: ServiceConnection) {
        if let Some(host) = self.host() {
            host.handle_service_connection_closed(connection);
        }
    }

    /// Reports that a connection has been waiting for an answer from the server since `sent`, for
    /// example for the answer to an operation. Call this each time that a further period of
    /// [`patience`](Self::patience) has passed without an answer.
    ///
    /// This is a hint for the [detector](Detector) of the topology, which then asks the server
    /// whether it answers at all. From then on, report replies as [answers](Self::handle_answer).
    pub fn handle_late(&self, sent: Instant) {
        if let Some(host) = self.host() {
            host.handle_late(self.server, sent);
        }
    }

    /// Returns the time after which an answer is reported as [late](Self::handle_late); `None` if
    /// the topology has no detector.
    pub fn patience(&self) -> Option<Duration> {
        self.trial.as_ref().map(|(patience, _)| *patience)
    }

    /// Reports that the server replied to an operation. This matters only if the detector is
    /// waiting for an answer; otherwise the call costs almost nothing.
    pub fn handle_answer(&self) {
        if let Some((_, asked)) = &self.trial
            && asked.load(Ordering::Relaxed)
            && let Some(host) = self.host()
        {
            host.handle_answer(self.server);
        }
    }

    /// Waits for an answer from the server, and reports it as late each time that a further period
    /// of [`patience`](Self::patience) has passed without an answer.
    pub(super) async fn noticing<F: Future>(&self, clock: &dyn Clock, answer: F) -> F::Output {
        let Some(patience) = self.patience() else {
            return answer.await;
        };
        let sent = clock.now();
        race::noticing(clock, patience, || self.handle_late(sent), answer).await
    }

    /// Returns the generation of newly opened connections or, behind a load balancer, of newly
    /// opened connections to `service`. Returns `None` if the server has left the topology.
    pub fn generation(&self, service: Option<ObjectId>) -> Option<Generation> {
        self.host()?.generation(self.server, service)
    }

    /// Returns the first message of a newly opened connection. It contains the client metadata, and
    /// the API and the framing that the options specify. Returns `None` if the topology no longer
    /// exists.
    pub fn hello(&self) -> Option<HelloRequest> {
        Some(self.host()?.hello())
    }

    fn host(&self) -> Option<Arc<dyn PoolHost>> {
        self.host.as_ref()?.upgrade()
    }
}

sdam_core::opaque!(Reporter, |this| server: this.server, is_attached: this.is_attached());

/// The topology behind the [`Reporter`]s of its pools.
///
/// Only topologies implement this trait. Pools use the [`Reporter`], which documents the methods.
pub trait PoolHost: Send + Sync {
    /// Applies an error; see [`Reporter::handle_error`].
    fn handle_error(self: Arc<Self>, server: ServerId, error: &ErrorReport) -> ErrorOutcome;

    /// Applies a handshake; see [`Reporter::handle_handshake`].
    fn handle_handshake(
        self: Arc<Self>,
        server: ServerId,
        generation: Generation,
        reply: HelloReply,
    ) -> Result<Option<ServiceConnection>, Error>;

    /// Stops counting a connection that was closed; see
    /// [`Reporter::handle_service_connection_closed`].
    fn handle_service_connection_closed(self: Arc<Self>, connection: ServiceConnection);

    /// Handles a late answer; see [`Reporter::handle_late`]. Does nothing without a detector.
    fn handle_late(self: Arc<Self>, server: ServerId, sent: Instant) {
        let _ = (server, sent);
    }

    /// Handles an answer; see [`Reporter::handle_answer`]. Does nothing without a detector.
    fn handle_answer(self: Arc<Self>, server: ServerId) {
        let _ = server;
    }

    /// Returns the generation of new connections; see [`Reporter::generation`].
    fn generation(&self, server: ServerId, service: Option<ObjectId>) -> Option<Generation>;

    /// Returns the first message of a new connection; see [`Reporter::hello`].
    fn hello(&self) -> HelloRequest;
}

/// A pooled connection to a service behind a load balancer, which the topology counts.
///
/// A pool stores this record with the connection, and puts [`generation`](Self::generation) and
/// [`service_id`](Self::service_id) into the connection's error reports. When the connection is
/// closed, the pool passes the record by value to [`Reporter::handle_service_connection_closed`],
/// so that no closing can be reported twice.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the topology remembers the service until the connection is reported as closed"]
pub struct ServiceConnection {
    server: ServerId,
    service: ObjectId,
    generation: Generation,
}

impl ServiceConnection {
    /// Returns the record of a connection that a topology has just counted.
    pub fn new(server: ServerId, service: ObjectId, generation: Generation) -> Self {
        Self { server, service, generation }
    }

    /// Returns the server id of the load balancer.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Returns the service to which the connection leads.
    pub fn service_id(&self) -> ObjectId {
        self.service
    }

    /// Returns the generation of the connection. The connection is stale once a clear has given its
    /// service a higher generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }
}
