//! Established connections, and the replies to commands on them.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, REAUTHENTICATION_REQUIRED, Stage},
    hello::Hello,
    ids::{Generation, ObjectId},
    reply::{self, WriteError},
    report::ErrorReport,
    time::Instant,
};

use super::{Authenticator, Reporter, ServiceConnection, auth::reauthenticate};
use crate::{
    clock::Clock,
    connect::{Connection, Line},
    race,
    wire::WireMessage,
};

/// A connection of a pool, after its handshake.
///
/// Call [`close`](Self::close) when the pool no longer needs the connection. Dropping the
/// connection also closes the socket, but behind a load balancer the topology then counts the
/// connection forever.
#[must_use = "a connection to a service behind a load balancer is counted until it is closed"]
pub struct Established {
    pub(super) line: Line,
    pub(super) hello: Hello,
    pub(super) hello_reply: Box<[u8]>,
    /// True if the server demands an authentication.
    pub(super) is_refused: bool,
    pub(super) authenticator: Option<Arc<dyn Authenticator>>,
    /// The address of the server.
    pub(super) address: ServerAddress,
    pub(super) generation: Generation,
    pub(super) service: Option<ServiceConnection>,
    pub(super) reporter: Reporter,
    pub(super) clock: Arc<dyn Clock>,
}

impl Established {
    /// Returns the reply to the handshake, with the limits of the server: wire versions, and
    /// maximum sizes of documents, messages and write batches.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the reply to the handshake as a BSON document. Use it to read fields that
    /// [`hello`](Self::hello) does not have, such as `compression`. Fields for authentication are
    /// removed.
    pub fn hello_reply(&self) -> &[u8] {
        &self.hello_reply
    }

    /// Returns the pool's generation or, behind a load balancer, the service's generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the service to which the connection leads, if it goes through a load balancer.
    pub fn service_id(&self) -> Option<ObjectId> {
        self.service.as_ref().map(ServiceConnection::service_id)
    }

    /// Returns whether the connection must be closed. This is the case if the server has left the
    /// topology, or if the pool (behind a load balancer, the service) has been cleared since the
    /// connection was opened.
    ///
    /// This locks the topology briefly. A pool with many check-outs per second should instead
    /// compare [`generation`](Self::generation) with the generation of its last
    /// [`clear`](super::PoolHandle::clear).
    pub fn is_stale(&self) -> bool {
        let current = self.reporter.generation(self.service_id());
        current.is_none_or(|current| self.generation < current)
    }

    /// Returns whether the next command may be sent. If not, close the connection. No command may
    /// be sent after a command, here or on the [connection](Self::connection), got no reply, was
    /// dropped, or got a message that is not its reply, or while the server demands an
    /// authentication.
    pub fn is_usable(&self) -> bool {
        self.line.is_usable() && !self.is_refused
    }

    /// Returns the connection, for drivers that frame their own messages: each request must be
    /// followed by its reply.
    pub fn connection(&mut self) -> &mut dyn Connection {
        &mut self.line
    }

    /// Runs a command, a BSON document with `$db`, and returns the reply if its `ok` is 1. All
    /// errors, including those in the reply, are reported to the topology.
    ///
    /// If the server answers with the error `ReauthenticationRequired`, the connection is
    /// [authenticated again](Authenticator::reauthenticate), and the command is run again, once.
    ///
    /// `timeout` limits the time to wait for the reply. `None` means that there is no limit.
    ///
    /// # Errors
    ///
    /// If the server answered with an error, or does not accept the size of the command
    /// ([`ErrorKind::Invalid`]). The connection then stays [usable](Self::is_usable), unless the
    /// server still demands an authentication, or the authentication failed. Also fails if the
    /// connection broke, if no reply came in time, or if the received message is not a valid reply:
    /// it answers another request, has no `ok`, or is not BSON. Close the connection in these
    /// cases.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. It is then unknown whether the command took effect,
    /// and the connection is [not usable](Self::is_usable).
    pub async fn run_command(
        &mut self,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CommandReply, Error> {
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        self.line.set_deadline(deadline);
        let mut is_second = false;
        loop {
            let outcome = self.attempt(command, deadline).await;
            let code = outcome.as_ref().err().and_then(Error::code);
            if code != Some(REAUTHENTICATION_REQUIRED) {
                return outcome;
            }
            self.is_refused = true;
            if is_second || self.authenticator.is_none() {
                return outcome;
            }
            drop(outcome);
            // This future is large, and rarely needed.
            Box::pin(self.authenticate_again(deadline)).await?;
            (self.is_refused, is_second) = (false, true);
        }
    }

    async fn attempt(
        &mut self,
        command: &[u8],
        deadline: Option<Instant>,
    ) -> Result<CommandReply, Error> {
        let (stage, clock) = (Stage::Operation, &*self.clock);
        let request = self.line.exchange().command(command);
        let conversation = self.line.converse(request, stage);
        let conversation = self.reporter.noticing(clock, conversation);
        let outcome = race::within(clock, deadline, (stage, NO_ANSWER), conversation).await;
        let message = outcome.map_err(|error| self.report(error))?;
        self.reporter.handle_answer();
        let reply = CommandReply::check(message, |error| self.report(error));
        if let Err(error) = &reply
            && error.kind() == ErrorKind::Protocol
        {
            self.line.exchange().break_off();
        }
        reply
    }

    /// Authenticates the connection again.
    async fn authenticate_again(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Some(authenticator) = &self.authenticator else {
            return Ok(());
        };
        let (own, server) = (&**authenticator, &self.address);
        let authentication = reauthenticate(&mut self.line, own, server, &self.hello_reply);
        let late = (Stage::Operation, NO_ANSWER);
        let outcome = race::within(&*self.clock, deadline, late, authentication).await;
        outcome.map_err(|error| self.report(error))
    }

    /// Reports an error on this connection, together with the connection's generation, service and
    /// wire version. Returns the error with its [outcome](Error::outcome), and with the labels that
    /// the error of an operation needs.
    ///
    /// ```
    /// # use sdam_core::error::{Error, ErrorOutcome};
    /// # fn example(connection: &sdam_transport::pool::Established) -> Option<ErrorOutcome> {
    /// connection.report(Error::auth("the password is wrong")).outcome()
    /// # }
    /// ```
    pub fn report(&self, error: Error) -> Error {
        let report = ErrorReport::new(self.generation, error)
            .with_service(self.service_id())
            .with_max_wire_version(self.hello.wire_versions.max);
        let error = self.reporter.report(report);
        if error.address().is_some() { error } else { error.with_address(&self.address) }
    }

    /// Closes the connection. Report the connection's errors first, because behind a load balancer,
    /// the topology forgets a service when its last connection is closed.
    ///
    /// The caller must not hold a lock that the pool's `ready`, `clear` or `close` take.
    pub fn close(self) {
        let Self { line, service, reporter, .. } = self;
        drop(line);
        if let Some(service) = service {
            reporter.handle_service_connection_closed(service);
        }
    }
}

sdam_core::opaque!(Established, |this|
    server: this.reporter.server(),
    generation: this.generation,
    service_id: this.service_id()
);

/// The reply to a successful command: its `ok` is 1.
#[derive(Clone, Debug)]
pub struct CommandReply {
    message: WireMessage,
    write_concern_error: Option<Error>,
}

impl CommandReply {
    /// Checks `message`, which is the reply to a command. If it contains an error, passes the error
    /// to `report`, which reports the error to the topology, and uses the error that `report`
    /// returns.
    ///
    /// # Errors
    ///
    /// If `ok` is not 1, the server's error with its [reply](Error::reply). If `ok` is missing or
    /// the document is not BSON, an error of the kind [`ErrorKind::Protocol`]; close the connection
    /// in this case.
    pub fn check(message: WireMessage, report: impl FnOnce(Error) -> Error) -> Result<Self, Error> {
        // Only errors concern the topology, so the topology is not locked for a successful reply.
        match reply::check(message.body(), Stage::Operation) {
            Ok(error) => Ok(Self { message, write_concern_error: error.map(report) }),
            Err(error) => Err(report(error)),
        }
    }

    /// Returns the BSON document of the reply.
    pub fn body(&self) -> &[u8] {
        self.message.body()
    }

    /// Returns the errors of individual writes, `writeErrors`. These errors do not concern the
    /// state of the server.
    pub fn write_errors(&self) -> Vec<WriteError> {
        reply::write_errors(self.body())
    }

    /// Returns the write concern error, or the error of a legacy getLastError: the command has run,
    /// but its writes may not be durable, or may not have reached every required member. The
    /// topology has already handled the error.
    pub fn write_concern_error(&self) -> Option<&Error> {
        self.write_concern_error.as_ref()
    }

    /// Returns the error of a command that has run, if some of its writes failed or their write
    /// concern was not met: an error of kind [`ErrorKind::Write`] with the code and the message of
    /// the first failed write, and with this reply.
    pub fn write_error(&self) -> Option<Error> {
        let (errors, concern) = (self.write_errors(), self.write_concern_error());
        let error = match (&*errors, concern) {
            ([first, rest @ ..], _) => {
                let more = match rest.len() {
                    0 => String::new(),
                    count => format!("; {count} more of its writes failed"),
                };
                let message = format!("write {}: {}{more}", first.index, first.message);
                Error::new(ErrorKind::Write, Stage::Operation, message).with_code(first.code)
            }
            ([], Some(concern)) => {
                let message = format!("the write concern was not met: {}", concern.message());
                Error::new(ErrorKind::Write, Stage::Operation, message)
                    .with_code(concern.code())
                    .with_code_name(concern.code_name())
            }
            ([], None) => return None,
        };
        let labels = concern.into_iter().flat_map(Error::labels);
        let version = concern.and_then(Error::topology_version);
        Some(error.with_labels(labels).with_topology_version(version).with_reply(self.body()))
    }

    /// Adds a label to the [`write_concern_error`](Self::write_concern_error), if any.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        self.write_concern_error = self.write_concern_error.map(|error| error.with_label(label));
        self
    }
}

/// The error message for a time-out.
pub(super) const NO_ANSWER: &str = "no answer came in time";
