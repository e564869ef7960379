//! What operations do with servers: use their connections, report what they meet.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    app_error::{AppError, Cause, ErrorOutcome, Phase},
    error::{ServerError, Stage},
    ids::ServerId,
    monitor::MonitorInput,
    scan::ScanInput,
};
use sdam_transport::{error::TransportError, race};

use super::{Channel, ScanTopology};

impl ScanTopology {
    /// Reports what an operation has met on `server`.
    ///
    /// Whatever a command's reply or a broken connection says may be reported; what matters is
    /// sorted out here, and has taken effect when the call returns.
    /// An error of the network costs the connection in any case, and a primary that is none any more
    /// makes the next selection scan first (SDAM: "not writable primary and node is recovering").
    /// No I/O is performed.
    pub fn handle_error(&mut self, server: ServerId, error: AppError<'_>) -> ErrorOutcome {
        let own = self.generation(server, error.service_id);
        let outcome = self.apply_error(server, &error);
        if matches!(error.cause, Cause::Network { .. }) && own == Some(error.generation) {
            self.disconnect_quietly(server);
        }
        if matches!(outcome, ErrorOutcome::MarkedUnknown | ErrorOutcome::Cleared) {
            self.scan.server_lost(self.machine.description(), server);
        }
        self.deliver();
        outcome
    }

    /// The connection to `server`, if it is open.
    ///
    /// After a selection it usually is, because the scan has opened it.
    /// It counts as used at this moment, which decides when it is probed.
    pub fn channel(&mut self, server: ServerId) -> Option<Channel<'_>> {
        let now = self.now();
        let service = self.members.get(&server)?.service;
        let generation = self.generation(server, service)?;
        let status = self.machine.status(server);
        let member = self.members.get_mut(&server)?;
        Channel::of(member, now, generation, status)
    }

    /// The connection to `server`, opened if need be.
    ///
    /// Opening one means to check the server, no sooner than 500 ms after its last check.
    /// Behind a load balancer it means a handshake, and there is that one connection (Load Balancers:
    /// "Connection Pooling").
    ///
    /// # Errors
    ///
    /// If it could not be opened; the topology knows.
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

    /// Runs a command, a BSON document with `$db`, on the connection to `server`, which is opened if
    /// need be, and returns the reply.
    ///
    /// Whatever goes wrong is reported to the topology, and so is what the reply says.
    /// A reply that takes longer than `timeout` costs the connection.
    ///
    /// # Errors
    ///
    /// If there is no connection and none could be opened, or it broke. A reply that says that the
    /// command has failed is no error.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Nobody knows then what became of the command.
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
        let report = |cause| AppError {
            generation,
            service_id,
            phase: Phase::AfterHandshake,
            cause,
            max_wire_version,
        };
        match outcome {
            Ok(reply) => {
                self.handle_error(server, report(Cause::Reply(reply.body())));
                Ok(reply.body().to_vec())
            }
            Err(error) => {
                self.handle_error(server, report(error.cause(Phase::AfterHandshake)));
                Err(error.into())
            }
        }
    }

    /// Closes the connection to `server`, unless a check is under way on it. Says nothing about the
    /// server.
    pub fn disconnect(&mut self, server: ServerId) {
        self.disconnect_quietly(server);
        self.deliver();
    }

    /// The greatest wire version of the connection to `server`.
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
