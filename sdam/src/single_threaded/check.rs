//! Checks, probes, the connection to a load balancer, and the authentication of the connection
//! shared by checks and operations.

use std::sync::Arc;

use sdam_core::{
    deployment::{ConnId, Input, Role, Timer},
    error::{Error, ErrorKind, Stage},
    hello::{Hello, HelloRequest, ping},
    ids::ServerId,
    report::ErrorReport,
    server::ServerType,
    time::Instant,
};
use sdam_transport::{
    connect::Connection as _,
    pool::{Authenticator, PoolHost as _, authenticate, reauthenticate},
    race,
};

use super::{Scanner, connection::Member};
use crate::monitor::MonitorConnection;

impl Scanner {
    /// Waits for the answer to the running check, if there is one, or for the state machine's
    /// deadline.
    pub(super) async fn answer(&mut self) -> Input {
        let deadline = self.engine.deadline(Timer::Scan);
        let mut members = self.members.values_mut();
        let mut running = members.find(|member| member.connection.is_busy());
        let mut none = MonitorConnection::default();
        let connection = match &mut running {
            Some(member) => &mut member.connection,
            None => &mut none,
        };
        let clock = &*self.engine.common.backend.clock;
        let answer = connection.answer(clock, deadline).await;
        if let (Some(answer), Some(member)) = (answer, running) {
            if let Input::Reply { reply, .. } = &answer {
                member.used = clock.now();
                if let Ok(hello) = &reply.hello {
                    member.hello = Hello::clone(hello);
                }
            }
            return answer;
        }
        let (timer, wanted) = (Timer::Scan, false);
        Input::Due { timer, wanted }
    }

    /// Sends `ping` on the server's connection, or continues to wait for the reply to an earlier
    /// `ping`. Any reply shows that the connection is alive; if none arrives, the connection is
    /// closed.
    pub(super) async fn probe(&mut self, server: ServerId) -> Input {
        let outcome = self.ping(server).await;
        if let (Err(_), Some(member)) = (&outcome, self.members.get_mut(&server)) {
            member.disconnect();
        }
        Input::Probed { server, outcome }
    }

    async fn ping(&mut self, server: ServerId) -> Result<(), Error> {
        let deadline = self.reply_deadline();
        let ping = ping(self.engine.common.options.server_api.as_ref());
        let member = self.members.get_mut(&server).ok_or_else(gone)?;
        if !member.connection.is_busy() {
            member.connection.probe(server, ping, deadline);
        }
        let clock = &*self.engine.common.backend.clock;
        let Some(Input::Probed { outcome, .. }) = member.connection.answer(clock, deadline).await
        else {
            return Err(self.too_late(Stage::Operation));
        };
        if outcome.is_ok() {
            member.used = clock.now();
        }
        outcome
    }

    /// Closes the connection to `server` between two checks.
    pub(super) fn lose_connection(&mut self, server: ServerId) {
        if let Some(member) = self.members.get_mut(&server) {
            member.disconnect();
            if let Some(conn) = member.connection.conn {
                self.tell(Input::ConnectionLost { conn });
            }
        }
    }

    /// Opens the only connection to a load balancer. Connection errors do not change the topology
    /// (Load Balancers: "Error handling").
    pub(super) async fn open_balanced(&mut self, server: ServerId) -> Result<(), Error> {
        let outcome = self.greet_balancer(server).await;
        if let (Err(_), Some(member)) = (&outcome, self.members.get_mut(&server)) {
            member.disconnect();
        }
        outcome
    }

    async fn greet_balancer(&mut self, server: ServerId) -> Result<(), Error> {
        let deadline = self.reply_deadline();
        let engine = &self.engine;
        let clock = &*engine.common.backend.clock;
        let member = self.members.get_mut(&server).ok_or_else(gone)?;
        // An attempt that an earlier call has left unfinished is not continued.
        member.disconnect();
        // The deployment does not check a load balancer, so no other connection has this id.
        let conn = ConnId { server, role: Role::Check, number: 0 };
        engine.connect(conn, &member.server, &mut member.connection, deadline);
        match member.connection.answer(clock, deadline).await {
            Some(Input::Failed { error, .. }) => return Err(error),
            None => return Err(self.too_late(Stage::Connect)),
            Some(_) => {}
        }
        let deadline = self.reply_deadline();
        let member = self.members.get_mut(&server).ok_or_else(gone)?;
        member.connection.send(engine.hello(), deadline);
        let reply = match member.connection.answer(clock, deadline).await {
            Some(Input::Reply { reply, .. }) => reply,
            Some(Input::Failed { error, .. }) => return Err(error),
            _ => return Err(self.too_late(Stage::Hello)),
        };
        let hello = reply.hello.clone()?;
        member.service = Some(hello.load_balanced_service()?);
        member.hello = *hello;
        member.used = engine.now();
        // The previous connection is reported as closed first.
        if let Some(before) = member.counted.take() {
            Arc::clone(engine).handle_service_connection_closed(before);
        }
        let generation = engine.generation(server, None).unwrap_or_default();
        let counted = Arc::clone(engine).handle_handshake(server, generation, reply)?;
        member.counted = counted;
        self.follow();
        Ok(())
    }

    /// Returns the deadline for the reply to a request sent now.
    fn reply_deadline(&self) -> Option<Instant> {
        let limit = self.engine.common.config.connect_timeout?;
        Some(self.now() + limit)
    }

    fn too_late(&self, stage: Stage) -> Error {
        let limit = self.engine.common.config.connect_timeout.unwrap_or_default();
        Error::new(ErrorKind::Timeout, stage, format!("no answer within {limit:?}"))
    }

    pub(super) fn is_balancer(&self, server: ServerId) -> bool {
        self.engine.common.options.load_balanced && self.members.contains_key(&server)
    }

    /// Returns whether the connection to `server` is open and usable.
    pub(super) fn is_connected(&mut self, server: ServerId) -> bool {
        let member = self.members.get_mut(&server);
        member.is_some_and(Member::is_connected)
    }

    /// Returns the reason why there is no connection to `server`.
    pub(super) fn connection_error(&self, server: ServerId) -> Error {
        let snapshot = self.engine.published.load();
        let description = snapshot.description.server_by_id(server);
        match description.and_then(|server| server.error.as_ref()) {
            Some(error) => error.clone(),
            None => gone(),
        }
    }
}

impl Scanner {
    /// Returns whether the connection to `server` is open but not authenticated, although the
    /// server may have users.
    pub(super) fn lacks_authentication(&mut self, server: ServerId) -> bool {
        let snapshot = self.engine.published.load();
        let description = snapshot.description.server_by_id(server);
        // Authentication: "If the server is of type RSArbiter, no authentication is possible".
        let is_arbiter = description.is_some_and(|it| it.server_type == ServerType::RsArbiter);
        let member = self.members.get_mut(&server).filter(|_| !is_arbiter);
        member.is_some_and(|member| member.is_connected() && !member.is_authenticated())
    }

    /// Authenticates the open connection to `server`, if there is an authenticator and the
    /// connection is not authenticated yet. A failure is reported, and closes the connection.
    pub(super) async fn authenticate(&mut self, server: ServerId) -> Result<(), Error> {
        let Some(authenticator) = self.engine.common.authenticator.clone() else {
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
        let Some(authenticator) = self.engine.common.authenticator.clone() else {
            return Ok(false);
        };
        self.converse(server, &*authenticator, deadline).await?;
        Ok(true)
    }

    /// Authenticates the open connection to `server`. Sends a hello first, unless the authenticator
    /// has already authenticated the connection.
    async fn converse(
        &mut self,
        server: ServerId,
        authenticator: &dyn Authenticator,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let clock = Arc::clone(&self.engine.common.backend.clock);
        // Every server that has users accepts the legacy hello; behind a load balancer, `hello` is
        // mandatory.
        let hello = HelloRequest::poll(
            self.is_balancer(server),
            self.engine.common.config.server_api.clone(),
        );
        let Some(member) = self.members.get_mut(&server) else {
            return Ok(());
        };
        let (generation, service) = (member.generation(&self.engine), member.service);
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
                member.set_authenticated(&self.engine, reply);
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
        if self.engine.common.options.credential.is_none() || !self.lacks_authentication(server) {
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

fn gone() -> Error {
    Error::new(ErrorKind::Internal, Stage::Connect, "the server has left the topology")
}
