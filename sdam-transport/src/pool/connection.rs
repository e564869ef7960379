use std::{fmt, sync::Arc, time::Duration};

use sdam_core::{
    app_error::{AppError, ErrorOutcome},
    error::{ErrorKind, Stage},
    hello::Hello,
    ids::{Generation, ObjectId},
};

use super::{CommandReply, ConnectionError, Reporter, ServiceConnection};
use crate::{
    clock::Clock,
    connect::Connection,
    error::TransportError,
    race,
    wire::{Exchange, WireMessage},
};

/// A connection of a pool, after its handshake.
///
/// Call [`close`](Self::close) when the pool gives it up: dropping it closes the socket, but behind
/// a load balancer the topology would count the connection for ever.
#[must_use = "a connection to a service behind a load balancer is counted until it is closed"]
pub struct Established {
    pub(super) connection: Box<dyn Connection>,
    pub(super) exchange: Exchange,
    pub(super) hello: Hello,
    pub(super) hello_reply: Box<[u8]>,
    pub(super) generation: Generation,
    pub(super) service: Option<ServiceConnection>,
    pub(super) reporter: Reporter,
    pub(super) clock: Arc<dyn Clock>,
}

impl Established {
    /// Returns the reply to the handshake, with the limits of the server: wire versions, and the
    /// sizes of documents, messages and batches of writes.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the reply to the handshake, a BSON document, for fields that [`hello`](Self::hello)
    /// does not have, such as `compression`. What it says about authentication is left out.
    pub fn hello_reply(&self) -> &[u8] {
        &self.hello_reply
    }

    /// Returns the generation: that of the service behind a load balancer, otherwise that of the
    /// pool.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the service behind a load balancer that the connection leads to.
    pub fn service_id(&self) -> Option<ObjectId> {
        self.service.as_ref().map(ServiceConnection::service_id)
    }

    /// Returns whether the pool, or behind a load balancer the service, was cleared since the
    /// connection was opened, or the server has left the topology: then close it.
    ///
    /// Locks the topology for a moment. A pool that checks out many connections a second compares
    /// [`generation`](Self::generation) with the one of its last
    /// [`clear`](super::PoolHandle::clear) instead.
    pub fn is_stale(&self) -> bool {
        let current = self.reporter.generation(self.service_id());
        current.is_none_or(|current| self.generation < current)
    }

    /// Returns whether the next command may be sent. False for ever once a
    /// [`run_command`](Self::run_command) got no reply, was dropped, or got a message that is no
    /// reply to it: then close the connection.
    pub fn is_usable(&self) -> bool {
        self.exchange.is_usable()
    }

    /// Returns the seam's connection, for drivers that frame their own messages.
    pub fn connection(&mut self) -> &mut dyn Connection {
        &mut *self.connection
    }

    /// Runs a command, a BSON document with `$db`, and returns the reply, whose `ok` is 1. Errors,
    /// also those in the reply, are reported to the topology.
    ///
    /// `timeout` is that of the reply; `None` is no limit.
    ///
    /// # Errors
    ///
    /// If the server has answered with an error: the connection is [usable](Self::is_usable) as
    /// before. If the connection broke, no reply came in time, or the message that came cannot be
    /// the reply: it is another one's, has no `ok`, or is not BSON. Close the connection then.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Whether the command took effect is then unknown, and the
    /// connection is [not usable](Self::is_usable).
    pub async fn run_command(
        &mut self,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CommandReply, ConnectionError> {
        let stage = Stage::Operation;
        let clock = Arc::clone(&self.clock);
        let deadline = timeout.map(|timeout| clock.now() + timeout);
        self.connection.set_deadline(deadline);
        let request = self.exchange.command(command);
        let conversation = async {
            let request = request.map_err(|error| TransportError::from_wire(stage, error))?;
            converse(&mut *self.connection, &mut self.exchange, request, stage).await
        };
        let outcome = match race::deadline(&*clock, deadline, conversation).await {
            Ok(outcome) => outcome,
            Err(elapsed) => Err(late(stage).with_source(elapsed)),
        };
        match outcome {
            Ok(message) => {
                let reply = CommandReply::check(message, |body| {
                    self.report(|own| AppError::reply(own, stage, body))
                });
                if let Err(error) = &reply
                    && error.error.kind == ErrorKind::Protocol
                {
                    self.exchange.break_off();
                }
                reply
            }
            Err(error) => {
                let report = self.complete(error.app_error(self.generation));
                let outcome = self.reporter.handle_error(&report);
                Err(ConnectionError::labelled(&error, &report, outcome))
            }
        }
    }

    /// Reports an error of this connection, with its generation, service and wire version. `make`
    /// is given the generation.
    ///
    /// ```
    /// # use sdam_core::{app_error::{AppError, ErrorOutcome}, error::Stage};
    /// # fn example(connection: &sdam_transport::pool::Established) -> ErrorOutcome {
    /// connection.report(|generation| AppError::auth(generation, "the password is wrong"))
    /// # }
    /// ```
    pub fn report<'e>(&self, make: impl FnOnce(Generation) -> AppError<'e>) -> ErrorOutcome {
        let error = self.complete(make(self.generation));
        self.reporter.handle_error(&error)
    }

    /// Closes the connection, after any error of it was reported. Behind a load balancer, the
    /// topology forgets the service with its last connection.
    ///
    /// The caller holds no lock that the pool's `ready`, `clear` or `close` take.
    pub fn close(self) {
        let Self {
            connection,
            service,
            reporter,
            ..
        } = self;
        drop(connection);
        if let Some(service) = service {
            reporter.handle_service_connection_closed(service);
        }
    }

    /// Adds the service and the wire version of this connection.
    fn complete<'e>(&self, error: AppError<'e>) -> AppError<'e> {
        error
            .with_service(self.service_id())
            .with_max_wire_version(self.hello.wire_versions.max)
    }
}

impl fmt::Debug for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Established")
            .field("server", &self.reporter.server())
            .field("generation", &self.generation)
            .field("service_id", &self.service_id())
            .finish_non_exhaustive()
    }
}

/// Sends a request and returns the reply to it.
pub(super) async fn converse(
    connection: &mut dyn Connection,
    exchange: &mut Exchange,
    request: WireMessage,
    stage: Stage,
) -> Result<WireMessage, TransportError> {
    let at = |error: TransportError| error.at(stage);
    connection.send(request).await.map_err(at)?;
    let reply = connection.recv().await.map_err(at)?;
    exchange
        .accept(&reply)
        .map_err(|error| TransportError::from_wire(stage, error))?;
    Ok(reply)
}

pub(super) fn late(stage: Stage) -> TransportError {
    TransportError::timeout(stage, "no answer came in time")
}
