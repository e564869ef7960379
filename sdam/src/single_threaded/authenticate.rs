//! Authentication of the connection shared by checks and operations.

use std::sync::Arc;

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    hello::HelloRequest,
    ids::ServerId,
    report::ErrorReport,
    server::ServerType,
    time::Instant,
};
use sdam_transport::{
    connect::Connection as _,
    pool::{Authenticator, authenticate, reauthenticate},
    race,
};

use super::Scanner;

impl Scanner {
    /// Returns whether the connection to `server` is open but not authenticated, although the
    /// server may have users.
    pub(super) fn lacks_authentication(&mut self, server: ServerId) -> bool {
        let snapshot = self.shared.published.load();
        let description = snapshot.description.server_by_id(server);
        // Authentication: "If the server is of type RSArbiter, no authentication is possible".
        let is_arbiter = description.is_some_and(|it| it.server_type == ServerType::RsArbiter);
        let member = self.members.get_mut(&server).filter(|_| !is_arbiter);
        member.is_some_and(|member| member.is_connected() && !member.is_authenticated())
    }

    /// Authenticates the open connection to `server`, if there is an authenticator and the
    /// connection is not authenticated yet. A failure is reported, and closes the connection.
    pub(super) async fn authenticate(&mut self, server: ServerId) -> Result<(), Error> {
        let Some(authenticator) = self.shared.common.authenticator.clone() else {
            return Ok(());
        };
        if !self.lacks_authentication(server) {
            return Ok(());
        }
        let deadline = self.reply_deadline();
        self.converse(server, &*authenticator, deadline).await
    }

    /// Authenticates the connection to `server` again, if there is an authenticator. A failure is
    /// reported, and closes the connection. Returns whether the connection is authenticated.
    pub(super) async fn reauthenticate(
        &mut self,
        server: ServerId,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let Some(authenticator) = self.shared.common.authenticator.clone() else {
            return Ok(false);
        };
        self.converse(server, &*authenticator, deadline).await?;
        Ok(true)
    }

    /// Authenticates the open connection to `server`, without a hello if it is not the first time.
    async fn converse(
        &mut self,
        server: ServerId,
        authenticator: &dyn Authenticator,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let clock = Arc::clone(&self.shared.common.backend.clock);
        // Every server that has users accepts the legacy hello; behind a load balancer, `hello` is
        // mandatory.
        let hello = HelloRequest::poll(
            self.is_balancer(server),
            self.shared.common.config.server_api.clone(),
        );
        let Some(member) = self.members.get_mut(&server) else {
            return Ok(());
        };
        let (generation, service) = (member.generation(&self.shared), member.service);
        let max_wire_version = member.hello.wire_versions.max;
        let address = member.server.core.address.clone();
        let (Some(generation), Some(wire)) = (generation, member.connection.wire()) else {
            return Ok(());
        };
        wire.line.set_deadline(deadline);
        wire.line.set_limits(&member.hello);
        let before = wire.authenticated.take().filter(|hello| !hello.is_empty());
        let stage = if before.is_some() { Stage::Operation } else { Stage::Auth };
        let (line, late) = (&mut wire.line, (stage, "no answer came in time"));
        let exchanges = async {
            match before {
                Some(reply) => {
                    reauthenticate(line, authenticator, &address, &reply).await.map(|()| reply)
                }
                None => authenticate(line, authenticator, &address, hello).await,
            }
        };
        let failure = match race::within(&*clock, deadline, late, exchanges).await {
            Ok(reply) => {
                member.set_authenticated(&self.shared, reply);
                return Ok(());
            }
            Err(failure) => failure,
        };
        let report = ErrorReport::new(generation, failure)
            .with_service(service)
            .with_max_wire_version(max_wire_version);
        let outcome = self.handle_error(server, &report);
        self.disconnect(server);
        Err(report.error.with_outcome(outcome))
    }

    /// Returns an error if the connection string has a user and the connection is not
    /// authenticated.
    pub(super) fn check_authentication(&mut self, server: ServerId) -> Result<(), Error> {
        if self.shared.common.options.credential.is_none() || !self.lacks_authentication(server) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Internal,
            Stage::Auth,
            "the connection string has a user, and nothing authenticates it; call `authenticate` or \
             `authenticator` of the topology's builder",
        ))
    }
}
