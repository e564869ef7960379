//! The API of operations: use a server's connection, report errors.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    app_error::{AppError, Cause, ErrorOutcome},
    error::{ServerError, Stage},
    ids::ServerId,
    monitor::MonitorInput,
    scan::ScanInput,
};
use sdam_transport::{error::TransportError, race};

use super::{Channel, ScanTopology};

impl ScanTopology {
    /// Reports an application error on `server`.
    ///
    /// Any reply to a command and any connection error may be reported; irrelevant ones are
    /// ignored. All effects have run when the call returns.
    /// A network error also closes the connection. After an error of a former primary, the next
    /// selection scans first (SDAM: "not writable primary and node is recovering").
    /// No I/O is performed.
    pub fn handle_error(&mut self, server: ServerId, error: &AppError<'_>) -> ErrorOutcome {
        let own = self.generation(server, error.service_id);
        let outcome = self.apply_error(server, error);
        if matches!(error.cause, Cause::Network(_) | Cause::Timeout(_))
            && own == Some(error.generation)
        {
            self.disconnect_quietly(server);
        }
        if matches!(outcome, ErrorOutcome::MarkedUnknown | ErrorOutcome::Cleared) {
            self.scan.server_lost(self.machine.description(), server);
        }
        self.deliver();
        outcome
    }

    /// Returns the connection to `server`, if it is open.
    ///
    /// It usually is after a selection, because the scan has opened it.
    /// The call counts as a use of the connection, which decides when it is probed.
    pub fn channel(&mut self, server: ServerId) -> Option<Channel<'_>> {
        let now = self.now();
        let service = self.members.get(&server)?.service;
        let generation = self.generation(server, service)?;
        let status = self.machine.status(server);
        let member = self.members.get_mut(&server)?;
        Channel::of(member, now, generation, status)
    }

    /// Returns the connection to `server`, and opens it if necessary.
    ///
    /// Opening it checks the server, no sooner than 500 ms after its last check.
    /// Behind a load balancer it makes a handshake, and there is only that one connection (Load
    /// Balancers: "Connection Pooling").
    ///
    /// # Errors
    ///
    /// If it could not be opened; the topology is already updated.
    ///
    /// # Cancel safety
    ///
    /// As [`select`](Self::select).
    pub async fn connect(&mut self, server: ServerId) -> Result<Channel<'_>, ServerError> {
        if !self.is_connected(server) {
            let outcome = if self.is_balancer(server) {
                self.open_balanced(server).await
            } else {
                self.carry_out(ScanInput::Check { server }).await;
                Ok(())
            };
            self.deliver();
            outcome?;
        }
        let error = self.connection_error(server);
        self.channel(server).ok_or(error)
    }

    /// Runs a command, a BSON document with `$db`, on the connection to `server` and returns the
    /// reply. Opens the connection if necessary.
    ///
    /// Errors and the reply are reported to the topology.
    /// A reply that takes longer than `timeout` closes the connection.
    ///
    /// # Errors
    ///
    /// If there is no connection and none could be opened, or if it broke. A reply with a command
    /// error is not an error of this call.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Whether the command took effect is then unknown.
    pub async fn run_command(
        &mut self,
        server: ServerId,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, ServerError> {
        let clock = Arc::clone(&self.io.clock);
        let deadline = timeout.map(|timeout| self.now() + timeout);
        let mut channel = self.connect(server).await?;
        let (generation, service_id) = (channel.generation(), channel.service_id());
        let outcome =
            match race::deadline(&*clock, deadline, channel.command(command, deadline)).await {
                Ok(outcome) => outcome,
                Err(elapsed) => Err(TransportError::timeout(
                    Stage::Operation,
                    "the command took longer than allowed",
                )
                .with_source(elapsed)),
            };
        let max_wire_version = self.max_wire_version(server);
        match outcome {
            Ok(reply) => {
                let report = AppError::reply(generation, Stage::Operation, reply.body())
                    .with_service(service_id)
                    .with_max_wire_version(max_wire_version);
                self.handle_error(server, &report);
                Ok(reply.body().to_vec())
            }
            Err(error) => {
                let error = error.at(Stage::Operation);
                let report = error.app_error(generation).with_service(service_id);
                self.handle_error(server, &report);
                Err(error.into())
            }
        }
    }

    /// Closes the connection to `server`, unless a check is in progress on it. The server's
    /// description does not change.
    pub fn disconnect(&mut self, server: ServerId) {
        self.disconnect_quietly(server);
        self.deliver();
    }

    /// Returns the greatest wire version of the connection to `server`.
    fn max_wire_version(&self, server: ServerId) -> i32 {
        if let Some(member) = self
            .members
            .get(&server)
            .filter(|_| self.is_balancer(server))
        {
            return member.max_wire_version;
        }
        let description = self.machine.description().server_by_id(server);
        description.map_or(0, |server| server.wire_versions.max)
    }

    fn disconnect_quietly(&mut self, server: ServerId) {
        if let Some(member) = self.members.get_mut(&server)
            && !member.link.is_busy()
        {
            member.disconnect();
            self.tell_monitor(server, MonitorInput::Disconnected);
        }
    }
}
