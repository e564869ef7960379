//! The API for operations: using a server's connection, and reporting errors.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    deployment::ScanRequest,
    error::{Error, ErrorOutcome, REAUTHENTICATION_REQUIRED, Stage},
    ids::ServerId,
    report::ErrorReport,
    time::Instant,
};
use sdam_transport::{
    pool::{CommandReply, PoolHandle, PoolHost as _},
    race,
};

use super::{ScanConnection, ScanTopology, Scanner};

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
    /// It is usually open after a selection, because the scan has opened it;
    /// [`connect`](Self::connect) authenticates it. This call counts as a use of the connection, so
    /// it defers the next probe.
    pub fn connection(&mut self, server: ServerId) -> Option<ScanConnection<'_>> {
        let scanner = &mut self.scanner;
        scanner.follow();
        let is_usable =
            !scanner.lacks_authentication(server) || scanner.shared.common.authenticator.is_none();
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
        let clock = Arc::clone(&self.scanner.shared.common.backend.clock);
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
        let own = self.shared.generation(server, report.service_id);
        let outcome = Arc::clone(&self.shared).handle_error(server, report);
        self.follow();
        if report.error.is_network() && own == Some(report.generation) {
            self.disconnect(server);
        }
        outcome
    }

    fn connection(&mut self, server: ServerId) -> Option<ScanConnection<'_>> {
        self.follow();
        let member = self.members.get_mut(&server)?;
        let generation = member.generation(&self.shared)?;
        ScanConnection::of(member, &self.shared, generation)
    }

    /// Closes the connection to `server`, unless a check is in progress on it.
    pub(super) fn disconnect(&mut self, server: ServerId) {
        let member = self.members.get(&server);
        if member.is_some_and(|member| !member.connection.is_busy()) {
            self.lose_connection(server);
        }
    }
}

/// Returns whether the server demands that the connection is authenticated again.
fn is_refused(outcome: &Result<CommandReply, Error>) -> bool {
    outcome.as_ref().err().and_then(Error::code) == Some(REAUTHENTICATION_REQUIRED)
}
