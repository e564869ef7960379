//! The connection shared by checks and operations: the API with which operations use the connection
//! and report errors, and the member that has the connection.

use std::{fmt, sync::Arc, time::Duration};

use sdam_core::{
    deployment::{Input, ScanRequest},
    error::{Error, ErrorOutcome, REAUTHENTICATION_REQUIRED, Stage},
    hello::Hello,
    ids::{Generation, ObjectId, ServerId},
    report::ErrorReport,
    time::Instant,
};
use sdam_transport::{
    connect::Connection,
    pool::{CommandReply, PoolHandle, PoolHost as _, ServiceConnection},
    race,
    wire::WireMessage,
};

use super::{ScanTopology, Scanner};
use crate::{
    engine::{Engine, server::Server},
    monitor::MonitorConnection,
};

/// The open connection to a server, lent to one operation.
///
/// The caller has to report errors ([`handle_error`](crate::ScanTopology::handle_error)), and to
/// close the connection if it does not wait for a reply
/// ([`disconnect`](crate::ScanTopology::disconnect)).
/// [`run_command`](crate::ScanTopology::run_command) does both.
pub struct ScanConnection<'t> {
    member: &'t mut Member,
    engine: &'t Arc<Engine>,
    generation: Generation,
}

impl<'t> ScanConnection<'t> {
    /// Borrows the member's connection; `None` if it is closed or unusable.
    fn of(member: &'t mut Member, engine: &'t Arc<Engine>, generation: Generation) -> Option<Self> {
        if !member.is_connected() {
            return None;
        }
        member.used = engine.now();
        Some(Self { member, engine, generation })
    }

    /// Returns the generation of the connection, for use in error reports.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the last reply to hello on the connection. It contains the server's limits, and the
    /// `maxWireVersion` for use in error reports.
    pub fn hello(&self) -> &Hello {
        &self.member.hello
    }

    /// Returns the service to which a load balancer has connected this client, for use in error
    /// reports.
    pub fn service_id(&self) -> Option<ObjectId> {
        self.member.service
    }

    /// Marks the connection as authenticated, for drivers that authenticate it themselves. An
    /// overload error from a check then does not close the connection.
    pub fn set_authenticated(&mut self) {
        self.member.set_authenticated(self.engine, Box::default());
    }

    /// Sends `command` and reads the reply. `deadline` applies to blocking connections; for others,
    /// the caller has to race a timer. If the connection is no longer usable afterwards, the next
    /// call that needs the connection closes it.
    async fn command(
        &mut self,
        command: &[u8],
        deadline: Option<Instant>,
    ) -> Result<WireMessage, Error> {
        let Some(wire) = self.member.connection.wire() else {
            return Err(Error::network(Stage::Operation, "the connection is closed"));
        };
        wire.line.set_deadline(deadline);
        wire.line.set_limits(&self.member.hello);
        let request = wire.line.exchange().command(command);
        wire.line.converse(request, Stage::Operation).await
    }

    /// Returns the connection itself, for drivers that frame their own messages.
    ///
    /// Each request must be followed by its reply; otherwise the next call of the topology closes
    /// the connection. The deadline of the last check applies until another deadline is set.
    /// Messages of up to `maxMessageSizeBytes` are accepted until the next check.
    pub fn connection(&mut self) -> Option<&mut dyn Connection> {
        let wire = self.member.connection.wire()?;
        wire.line.set_limits(&self.member.hello);
        Some(&mut wire.line)
    }
}

impl fmt::Debug for ScanConnection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanConnection")
            .field("generation", &self.generation)
            .field("service", &self.member.service)
            .finish_non_exhaustive()
    }
}

impl<P: PoolHandle> ScanTopology<P> {
    /// Reports an error on the connection to `server`.
    ///
    /// Any error may be reported; irrelevant ones are ignored. All effects have run when the call
    /// returns. A network error, or a reply without `ok`, also closes the connection. If a former
    /// primary returned the error, the next selection scans first (SDAM: "not writable primary and
    /// node is recovering"). Performs no I/O.
    pub fn handle_error(&mut self, server: ServerId, error: &ErrorReport) -> ErrorOutcome {
        let outcome = self.scanner.handle_error(server, error);
        self.scanner.deliver();
        outcome
    }

    /// Returns the connection to `server` if it is open, and also authenticated if the topology has
    /// an [authenticator](crate::TopologyBuilder::authenticator).
    ///
    /// The connection is usually open after a selection, because the scan has opened it;
    /// [`connect`](Self::connect) authenticates it. This call counts as a use of the connection and
    /// so defers the next probe.
    pub fn connection(&mut self, server: ServerId) -> Option<ScanConnection<'_>> {
        let scanner = &mut self.scanner;
        scanner.follow();
        let is_usable =
            !scanner.lacks_authentication(server) || scanner.engine.common.authenticator.is_none();
        is_usable.then(|| scanner.connection(server)).flatten()
    }

    /// Returns the connection to `server`, and opens it if necessary. If the topology has an
    /// [authenticator](crate::TopologyBuilder::authenticator), the connection is authenticated,
    /// which takes at most `connectTimeoutMS`.
    ///
    /// Opening the connection checks the server, no sooner than 500 ms after its last check. Behind
    /// a load balancer, it performs a handshake instead, and there is only this one connection
    /// (Load Balancers: "Connection Pooling").
    ///
    /// # Errors
    ///
    /// If the connection could not be opened, or the authentication failed. The topology has
    /// already been updated to reflect the error.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn connect(&mut self, server: ServerId) -> Result<ScanConnection<'_>, Error> {
        let connected = self.scanner.connect(server).await;
        self.scanner.deliver();
        connected?;
        let error = self.scanner.connection_error(server);
        self.scanner.connection(server).ok_or(error)
    }

    /// Runs a command, a BSON document with `$db`, on the connection to `server` and returns the
    /// reply, whose `ok` is 1. Opens the connection if necessary.
    ///
    /// Errors, including those in the reply, are reported to the topology. If the reply takes
    /// longer than `timeout`, the connection is closed. If the server answers with the error
    /// `ReauthenticationRequired`, the connection is
    /// [authenticated again](sdam_transport::pool::Authenticator::reauthenticate), and the command
    /// is run again, once.
    ///
    /// # Errors
    ///
    /// If the server returns an error; if there is no connection and none could be opened and
    /// authenticated; if the connection string has a user, but the topology has no
    /// [authenticator](crate::TopologyBuilder::authenticator); if the connection broke, or the
    /// received message is not the reply to the command, has no `ok`, or is not BSON.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Whether the command took effect is then unknown.
    pub async fn run_command(
        &mut self,
        server: ServerId,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CommandReply, Error> {
        let deadline = timeout.map(|timeout| self.scanner.now() + timeout);
        let connected = self.scanner.connect(server).await;
        self.scanner.deliver();
        connected?;
        self.scanner.check_authentication(server)?;
        let first = self.attempt(server, command, deadline).await;
        if !is_refused(&first) {
            return first;
        }
        let authenticated = self.scanner.reauthenticate(server, deadline).await;
        self.scanner.deliver();
        let last =
            if authenticated? { self.attempt(server, command, deadline).await } else { first };
        if is_refused(&last) {
            self.disconnect(server);
        }
        last
    }

    /// Runs a command once on the open connection to `server`.
    async fn attempt(
        &mut self,
        server: ServerId,
        command: &[u8],
        deadline: Option<Instant>,
    ) -> Result<CommandReply, Error> {
        let clock = Arc::clone(&self.scanner.engine.common.backend.clock);
        let unusable = self.scanner.connection_error(server);
        let mut lent = self.scanner.connection(server).ok_or(unusable)?;
        let (generation, service_id) = (lent.generation(), lent.service_id());
        let max_wire_version = lent.hello().wire_versions.max;
        let late = (Stage::Operation, "the command took longer than allowed");
        let answer = lent.command(command, deadline);
        let outcome = race::within(&*clock, deadline, late, answer).await;
        let mut report = |error: Error| {
            let report = ErrorReport::new(generation, error.at(Stage::Operation))
                .with_service(service_id)
                .with_max_wire_version(max_wire_version);
            let outcome = self.handle_error(server, &report);
            report.error.with_outcome(outcome)
        };
        CommandReply::check(outcome.map_err(&mut report)?, report)
    }

    /// Closes the connection to `server`, unless a check is in progress on it. The server's
    /// description does not change.
    pub fn disconnect(&mut self, server: ServerId) {
        self.scanner.disconnect(server);
        self.scanner.deliver();
    }
}

impl Scanner {
    /// Opens and authenticates the connection to `server`, if necessary.
    async fn connect(&mut self, server: ServerId) -> Result<(), Error> {
        self.follow();
        if !self.is_connected(server) {
            if self.is_balancer(server) {
                self.open_balanced(server).await?;
            } else {
                self.carry_out(ScanRequest::Check { server }).await;
            }
        }
        self.authenticate(server).await
    }

    pub(super) fn handle_error(&mut self, server: ServerId, report: &ErrorReport) -> ErrorOutcome {
        let own = self.engine.generation(server, report.service_id);
        let outcome = Arc::clone(&self.engine).handle_error(server, report);
        self.follow();
        if report.error.is_network() && own == Some(report.generation) {
            self.disconnect(server);
        }
        outcome
    }

    fn connection(&mut self, server: ServerId) -> Option<ScanConnection<'_>> {
        self.follow();
        let member = self.members.get_mut(&server)?;
        let generation = member.generation(&self.engine)?;
        ScanConnection::of(member, &self.engine, generation)
    }

    /// Closes the connection to `server`, unless a check is in progress on it.
    pub(super) fn disconnect(&mut self, server: ServerId) {
        let member = self.members.get(&server);
        if member.is_some_and(|member| !member.connection.is_busy()) {
            self.lose_connection(server);
        }
    }
}

/// A server with the connection shared by checks and operations.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) server: Arc<Server>,
    /// The connection, whose generation is always current, because clearing the pool closes the
    /// connection.
    pub(super) connection: MonitorConnection,
    /// The time at which the connection was last used.
    pub(super) used: Instant,
    /// The service to which the connection leads behind a load balancer.
    pub(super) service: Option<ObjectId>,
    /// The last connection to a load balancer that was reported to the topology. It is reported as
    /// closed only when the next one opens, because an operation may report its error after the
    /// connection is closed.
    pub(super) counted: Option<ServiceConnection>,
    /// The last reply to hello. It is kept after the connection is closed, until the next
    /// connection has received a reply.
    pub(super) hello: Hello,
}

impl Member {
    /// Creates the member of `server`, without a connection.
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self {
            connection: MonitorConnection::default(),
            used: Instant::EPOCH,
            service: None,
            counted: None,
            hello: Hello::default(),
            server,
        }
    }

    pub(super) fn id(&self) -> ServerId {
        self.server.id()
    }

    /// Carries out the orders for the connection, and closes it if its service was cleared. Returns
    /// whether the server is still in the topology.
    pub(super) fn follow(&mut self, engine: &Engine) -> bool {
        let news = self.server.orders.take();
        for order in news.orders {
            engine.execute(order, &self.server, &mut self.connection);
        }
        if news.end || self.is_service_cleared(engine) {
            self.disconnect();
        }
        !news.end
    }

    /// Returns whether the connection leads to a service behind a load balancer, and that service
    /// was cleared after the connection had been opened.
    fn is_service_cleared(&self, engine: &Engine) -> bool {
        let (Some(_), Some(counted)) = (self.service, &self.counted) else {
            return false;
        };
        let current = self.generation(engine);
        current.is_some_and(|current| current > counted.generation())
    }

    /// Returns the current generation of the service, if there is one, otherwise the generation of
    /// the server.
    pub(super) fn generation(&self, engine: &Engine) -> Option<Generation> {
        engine.generation(self.id(), self.service)
    }

    /// Returns the time for which the connection has been idle; `None` without a connection.
    pub(super) fn idle(&mut self, now: Instant) -> Option<Duration> {
        self.connection.wire().map(|_| now.since(self.used))
    }

    /// Returns whether the connection is open and usable.
    pub(super) fn is_connected(&mut self) -> bool {
        !self.is_abandoned() && self.connection.wire().is_some()
    }

    /// Returns whether the connection is unusable, because an operation was dropped before its
    /// reply arrived, or received a message that was not its reply.
    pub(super) fn is_abandoned(&mut self) -> bool {
        self.connection.wire().is_some_and(|wire| !wire.line.is_usable())
    }

    /// Returns whether the connection is authenticated.
    pub(super) fn is_authenticated(&mut self) -> bool {
        self.connection.wire().is_some_and(|wire| wire.authenticated.is_some())
    }

    /// Marks the connection as authenticated. `hello` is the reply to the hello that began the
    /// authentication; empty if a driver has authenticated the connection.
    pub(super) fn set_authenticated(&mut self, engine: &Arc<Engine>, hello: Box<[u8]>) {
        if let Some(wire) = self.connection.wire() {
            wire.authenticated = Some(hello);
        }
        if let Some(conn) = self.connection.conn {
            engine.handle(Input::Authenticated { conn });
        }
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.connection.disconnect();
        self.service = None;
    }
}

/// Returns whether the server demands that the connection is authenticated again.
fn is_refused(outcome: &Result<CommandReply, Error>) -> bool {
    outcome.as_ref().err().and_then(Error::code) == Some(REAUTHENTICATION_REQUIRED)
}
