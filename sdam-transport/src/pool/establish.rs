//! Opens a pooled connection in several steps, each of which reports its own error.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::future::{FutureExt, TryFutureExt as _};
use sdam_core::{
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    hello::{Hello, HelloReply, without_speculative_reply},
    ids::Generation,
    report::ErrorReport,
    server::ServerType,
    time::Instant,
};

use super::{Established, PoolContext, ServiceConnection, auth::finish, connection::NO_ANSWER};
use crate::{
    connect::{Connection, Line},
    panic, race,
};

impl PoolContext {
    /// Opens a connection to the server: connects, exchanges hello, reports the reply or the error
    /// to the topology, and authenticates (CMAP: "Establishing a Connection"; Authentication:
    /// "Authentication Handshake").
    ///
    /// Does not authenticate if there is no [`authenticator`](Self::authenticator), or if the server
    /// is an arbiter. The connection keeps the authenticator, because the server may demand another
    /// authentication.
    ///
    /// The connection carries the [generation](Established::generation) that was current when the
    /// attempt began. Compare it with the pool's generation before using the connection, and close
    /// the connection if a clear came in between.
    ///
    /// `timeout` limits the whole attempt and is usually `connectTimeoutMS`; `None` means no limit.
    /// The caller must not hold a lock that the pool's `ready`, `clear` or `close` take (see
    /// [`Reporter`](super::Reporter)). This also applies when the caller drops the future.
    ///
    /// # Errors
    ///
    /// If the server has left the topology, could not be reached or refused the handshake, or if
    /// authentication failed. The error has already been reported, unless the server has left the
    /// topology or, behind a load balancer, the reply names no service. An authentication error has
    /// [`Stage::Auth`] and marks the server Unknown (I-14). If there is an authenticator, a refused
    /// hello counts as an authentication error.
    ///
    /// A panic of the transport or of the authenticator becomes an error of kind
    /// [`Internal`](ErrorKind::Internal). Such an error says nothing about the server, so it is not
    /// reported.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. The socket is then closed and no error is reported.
    /// Behind a load balancer, the connection is no longer counted.
    pub async fn establish(&self, timeout: Option<Duration>) -> Result<Established, Error> {
        self.establish_over(None, timeout).await
    }

    /// Opens a connection like [`establish`](Self::establish), but over the socket `dialed` if
    /// there is one.
    pub async fn establish_over(
        &self,
        dialed: Option<Box<dyn Connection>>,
        timeout: Option<Duration>,
    ) -> Result<Established, Error> {
        // The future is large but rarely needed. It is boxed so that the futures of pools stay
        // small.
        let outcome = without_panic(Box::pin(self.attempt(dialed, timeout))).await;
        outcome.map_err(|error| error.with_address(&self.address))
    }

    /// Opens a socket to the server, and negotiates TLS if necessary, but sends no message; see
    /// [`PoolHandle::prepare`](super::PoolHandle::prepare).
    ///
    /// # Errors
    ///
    /// If the server could not be reached. The error is not reported to the topology.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. The socket is then closed.
    pub async fn dial(&self, timeout: Option<Duration>) -> Result<Box<dyn Connection>, Error> {
        let clock = &*self.backend.clock;
        let deadline = timeout.map(|timeout| clock.now() + timeout);
        let dialing = self.backend.transport.connect(&self.address, deadline);
        let late = (Stage::Connect, NO_ANSWER);
        let outcome = without_panic(race::within(clock, deadline, late, dialing)).await;
        outcome.map_err(|error| error.with_address(&self.address))
    }

    async fn attempt(
        &self,
        dialed: Option<Box<dyn Connection>>,
        timeout: Option<Duration>,
    ) -> Result<Established, Error> {
        let (Some(generation), Some(mut hello)) =
            (self.reporter.generation(None), self.reporter.hello())
        else {
            return Err(gone());
        };
        let mut attempt = Establishing {
            context: self,
            deadline: timeout.map(|timeout| self.backend.clock.now() + timeout),
            generation,
            service: None,
            max_wire_version: None,
        };
        let connection = if let Some(dialed) = dialed {
            dialed
        } else {
            let connecting = self.backend.transport.connect(&self.address, attempt.deadline);
            attempt.step(Stage::Connect, connecting).await?
        };
        let mut line = Line::new(connection);
        line.set_deadline(attempt.deadline);
        let mut conversation = None;
        if let Some(authenticator) = &self.authenticator {
            let beginning = authenticator.begin(&self.address);
            let beginning = beginning.map_err(|error| error.at(Stage::Auth));
            let begun = attempt.step(Stage::Auth, beginning).await?;
            hello = hello.with_auth(begun.hello_auth());
            conversation = Some(begun);
        }
        if let Some(fields) = &self.hello_fields {
            hello = hello.with_fields(fields.clone());
        }
        let request = line.exchange().hello(&hello);
        let greeting = line.converse(request, Stage::Hello);
        let reply = attempt.step(Stage::Hello, greeting).await?;
        let hello = attempt.introduce(reply.body(), conversation.is_some())?;
        line.set_limits(&hello);
        // Authentication: "If the server is of type RSArbiter, no authentication is possible".
        if let Some(mut conversation) = conversation
            && hello.server_type != ServerType::RsArbiter
        {
            let finishing = finish(&mut line, &mut *conversation, reply.body());
            attempt.step(Stage::Auth, finishing).await?;
        }
        Ok(Established {
            is_refused: false,
            authenticator: self.authenticator.clone(),
            address: self.address.clone(),
            generation: attempt.generation,
            line,
            hello,
            hello_reply: without_speculative_reply(reply.body()).into(),
            service: attempt.service.take(),
            reporter: self.reporter.clone(),
            clock: Arc::clone(&self.backend.clock),
        })
    }
}

/// A connection that is being opened. When this is dropped, the topology stops counting the
/// connection.
struct Establishing<'n> {
    context: &'n PoolContext,
    deadline: Option<Instant>,
    /// The generation of the pool or, once it is known, of the service.
    generation: Generation,
    /// The counted connection to a service behind a load balancer.
    service: Option<ServiceConnection>,
    /// The server's maximum wire version; `None` until hello is answered.
    max_wire_version: Option<i32>,
}

impl Establishing<'_> {
    /// Reports the reply to hello.
    fn introduce(&mut self, reply: &[u8], authenticates: bool) -> Result<Hello, Error> {
        // Authentication data is removed because the topology publishes the reported reply.
        let reply = HelloReply::parse(&*without_speculative_reply(reply));
        let hello = reply.hello.clone().map_err(|error| {
            // Authentication: "If the hello [...] fails with an error, drivers MUST treat this as
            // an authentication error".
            let refused = error.kind() == ErrorKind::Command;
            let error = if refused && authenticates { error.at(Stage::Auth) } else { error };
            self.broken(if refused { error.with_reply(&*reply.document) } else { error })
        })?;
        let reporter = &self.context.reporter;
        // Behind a load balancer, a reply without a service says nothing about the server, so the
        // error is not reported.
        self.service = reporter.handle_handshake(self.generation, reply)?;
        if let Some(service) = &self.service {
            self.generation = service.generation();
        }
        self.max_wire_version = Some(hello.wire_versions.max);
        Ok(*hello)
    }

    /// Runs a step of this attempt, which must end by the deadline, and reports its error.
    async fn step<T>(
        &self,
        stage: Stage,
        step: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let clock = &*self.context.backend.clock;
        let step = self.context.reporter.noticing(clock, step);
        let outcome = race::within(clock, self.deadline, (stage, NO_ANSWER), step).await;
        outcome.map_err(|error| self.broken(error))
    }

    /// Reports an error. If the reply to hello has arrived, the report contains its service and its
    /// wire version.
    fn broken(&self, error: Error) -> Error {
        let service = self.service.as_ref().map(ServiceConnection::service_id);
        let report = ErrorReport::new(self.generation, error)
            .with_service(service)
            .with_max_wire_version(self.max_wire_version);
        self.context.reporter.report(report)
    }
}

impl Drop for Establishing<'_> {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            self.context.reporter.handle_service_connection_closed(service);
        }
    }
}

fn gone() -> Error {
    let text = "the server has left the topology, or the topology is closed";
    Error::new(ErrorKind::Internal, Stage::Connect, text).with_outcome(ErrorOutcome::UnknownServer)
}

/// Runs `opening`. If it panics, the panic becomes an error.
async fn without_panic<T>(opening: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    // This is unwind safe: only the connection may be left in an inconsistent state, and it is
    // dropped.
    let outcome = AssertUnwindSafe(opening).catch_unwind().await;
    outcome.unwrap_or_else(|payload| {
        let text = format!("opening the connection panicked: {}", panic::text(&*payload));
        Err(Error::new(ErrorKind::Internal, Stage::Connect, text))
    })
}
