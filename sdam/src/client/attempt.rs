//! The attempts to run a command, with their session, events and errors.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    command::CommandFields,
    document::{DocumentWriter, MalformedDocument},
    error::{Error, ErrorKind, MAX_TIME_MS_EXPIRED, RETRYABLE_WRITE_ERROR, Stage},
    event::{CommandInfo, EventKind},
    reply,
    server::ServerType,
    session::{ServerSession, SessionId, Transaction},
    time::Instant,
};
use sdam_events::sink::Interest;
use sdam_pool::{Pool, PooledConnection};
use sdam_select::criteria::Criteria;
use sdam_transport::pool::CommandReply;

use super::{
    Client,
    command::{Command, Kind},
    retry::{Budget, Failure, Limit, Policy},
};
use crate::{engine::Engine, select::selected::SelectedServer};

/// A command and the attempts to run it.
pub(super) struct Operation<'c> {
    pub(super) client: &'c Client,
    pub(super) command: &'c Command<'c>,
    pub(super) fields: CommandFields<'c>,
    /// The criteria whose read preference is sent.
    pub(super) criteria: Criteria,
    pub(super) limit: Limit,
    writes: Writes,
    /// The operation id in selection and command events.
    pub(super) id: i64,
    /// True if a retried write needs a transaction number, because an attempt failed for a reason
    /// other than overload.
    pub(super) needs_number: bool,
    lease: Option<Lease>,
}

/// The way in which write errors in a reply with `ok: 1` are returned to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// As errors of kind [`ErrorKind::Write`].
    Checked,
    /// In the reply.
    Raw,
}

/// The outcome of one attempt.
pub(super) enum Attempt {
    Replied(CommandReply),
    Failed(Box<Failure>),
    /// The write cannot be retried on this server.
    Unsupported,
}

impl<'c> Operation<'c> {
    /// Begins an operation.
    ///
    /// # Errors
    ///
    /// If the command is malformed, or has a field that the client adds itself.
    pub(super) fn new(
        client: &'c Client,
        command: &'c Command<'c>,
        criteria: Criteria,
        (limit, writes): (Limit, Writes),
    ) -> Result<Self, Error> {
        let fields = CommandFields::of(command.document)?;
        if let Some(field) = fields.reserved {
            return Err(reserved(command, field));
        }
        Ok(Self {
            client,
            command,
            fields,
            criteria,
            limit,
            writes,
            id: client.next_operation(),
            needs_number: false,
            lease: None,
        })
    }

    pub(super) fn policy(&self) -> Policy {
        let options = self.client.options();
        let (reads, writes) = (options.retry_reads, options.retry_writes);
        Policy {
            is_enabled: match self.command.kind {
                // Client Backpressure: "To retry runCommand, both MUST be enabled".
                Kind::Generic => reads && writes,
                Kind::Read => reads,
                Kind::Write => writes,
            },
            has_limit: self.limit.is_set(),
            max_adaptive_retries: options.max_adaptive_retries,
        }
    }

    /// Runs the command once on `server`, on a connection that is checked out before
    /// `check_out_by`.
    pub(super) async fn attempt(
        &mut self,
        server: &SelectedServer<Pool>,
        check_out_by: Option<Instant>,
    ) -> Attempt {
        let mut connection = match check_out(server.pool(), check_out_by).await {
            Ok(connection) => connection,
            Err(error) => {
                let error = of_command(self.command, error);
                return self.failed(server, None, error, false);
            }
        };
        if self.fields.takes_session() && self.lease.is_none() {
            self.lease = Lease::acquire(self.client, server, &connection);
        }
        if self.retries_write() && !self.fields.has_own_transaction_number() {
            let has_numbers = server.server_type() != ServerType::Standalone;
            match self.lease.as_mut().filter(|_| has_numbers) {
                Some(lease) => lease.begin_transaction(),
                None if self.needs_number => return Attempt::Unsupported,
                None => {}
            }
        }
        let budget = match self.budget(server) {
            Ok(budget) => budget,
            Err(error) => return self.failed(server, Some(&connection), error, false),
        };
        let session = self.lease.as_mut().and_then(Lease::send);
        let outcome = self.send(server, &mut connection, budget, session).await;
        if let Some(lease) = &mut self.lease {
            lease.answered(is_answered(&outcome));
        }
        match outcome {
            Ok(reply) => self.accept(server, &connection, reply),
            Err(error) => {
                let is_sent = error.kind() != ErrorKind::Invalid;
                self.failed(server, Some(&connection), error, is_sent)
            }
        }
    }

    /// Runs the command on `connection` and publishes its events.
    pub(super) async fn send(
        &self,
        server: &SelectedServer<Pool>,
        connection: &mut PooledConnection,
        budget: Budget,
        session: Option<Sent>,
    ) -> Result<CommandReply, Error> {
        let command = self.command;
        // Client Side Operations Timeout: "maxTimeMS MUST NOT be sent to mongocryptd".
        let is_cryptd = connection.hello().is_cryptd == Some(true);
        let budget = Budget { max_time: budget.max_time.filter(|_| !is_cryptd), ..budget };
        let document = command
            .encode(server, self, session, budget)
            .map_err(|error| malformed(command, error))?;
        let events = CommandEvents::begin(self, server, connection, &document);
        let reply = match connection.run_command(&document, budget.timeout).await {
            Ok(reply) => reply,
            Err(error) => {
                error.reply().into_iter().for_each(|reply| self.client.note_cluster_time(reply));
                // Command Monitoring: a command that is interrupted because its pool is cleared
                // fails with a network error.
                events.failed(match error.kind() {
                    ErrorKind::Interrupted => Error::network(Stage::Operation, error.to_string()),
                    _ => error.clone(),
                });
                return Err(of_command(command, error));
            }
        };
        self.client.note_cluster_time(reply.body());
        events.succeeded(reply.body());
        match expired(&reply) {
            Some(error) if self.limit.is_set() => Err(in_reply(command, error, &reply)),
            _ => Ok(reply),
        }
    }

    /// Returns the time limits of the command's exchange with `server`.
    pub(super) fn budget(&self, server: &SelectedServer<Pool>) -> Result<Budget, Error> {
        let minimum = server.rtt().map_or(Duration::ZERO, |rtt| rtt.minimum);
        let socket_timeout = self.client.options().socket_timeout;
        let budget = self.limit.budget(self.now(), minimum, socket_timeout);
        budget.ok_or_else(|| without_time(self.command))
    }

    /// Returns whether the command is a write that may be retried (Retryable Writes).
    fn retries_write(&self) -> bool {
        let Command { kind, is_retryable, .. } = self.command;
        let has_number =
            self.fields.takes_transaction_number() || self.fields.has_own_transaction_number();
        *kind == Kind::Write && *is_retryable && has_number && self.client.options().retry_writes
    }

    /// Returns whether the write has a transaction number, so that it takes effect only once even
    /// if it is sent twice.
    fn has_number(&self) -> bool {
        self.fields.has_own_transaction_number()
            || self.lease.as_ref().is_some_and(Lease::is_in_transaction)
    }

    /// Converts a reply with `ok: 1`, which may contain write errors, to the outcome of the
    /// attempt.
    fn accept(
        &self,
        server: &SelectedServer<Pool>,
        connection: &PooledConnection,
        reply: CommandReply,
    ) -> Attempt {
        let concern = reply.write_concern_error().filter(|_| self.has_number());
        if let Some(concern) = concern {
            let error = in_reply(self.command, concern.clone(), &reply);
            if let Attempt::Failed(failure) = self.failed(server, Some(connection), error, true)
                && failure.is_retryable
            {
                // Old servers do not label the error themselves.
                let reply = reply.with_label(RETRYABLE_WRITE_ERROR);
                return Attempt::Failed(Box::new(match self.checked(server, &reply) {
                    Some(error) => Failure { error, ..*failure },
                    None => Failure { accepted: Some(reply), ..*failure },
                }));
            }
        }
        match self.checked(server, &reply) {
            Some(error) => Attempt::Failed(Box::new(Failure {
                error,
                is_sent: true,
                is_retryable: false,
                base_backoff: None,
                accepted: None,
            })),
            None => Attempt::Replied(reply),
        }
    }

    /// Returns the write error in the reply, unless the caller wants the reply itself.
    pub(super) fn checked(
        &self,
        server: &SelectedServer<Pool>,
        reply: &CommandReply,
    ) -> Option<Error> {
        let error = reply.write_error().filter(|_| self.writes == Writes::Checked)?;
        Some(of_command(self.command, error).with_address(server.address()))
    }

    fn failed(
        &self,
        server: &SelectedServer<Pool>,
        connection: Option<&PooledConnection>,
        error: Error,
        is_sent: bool,
    ) -> Attempt {
        let mut error = error.with_address(server.address());
        if self.retries_write() && is_retryable_write(server, connection, &error) {
            error = error.with_label(RETRYABLE_WRITE_ERROR);
        }
        Attempt::Failed(Box::new(Failure {
            is_retryable: self.allows_retry(server, &error, is_sent),
            base_backoff: error.reply().and_then(reply::base_backoff),
            error,
            is_sent,
            accepted: None,
        }))
    }

    fn allows_retry(&self, server: &SelectedServer<Pool>, error: &Error, is_sent: bool) -> bool {
        match self.command.kind {
            Kind::Generic => false,
            Kind::Read => {
                self.command.is_retryable
                    && self.fields.is_retryable_read()
                    && error.is_retryable_read()
            }
            // A retried write without a transaction number could run twice.
            Kind::Write => {
                self.retries_write()
                    && server.server_type() != ServerType::Standalone
                    && error.has_label(RETRYABLE_WRITE_ERROR)
                    && (self.has_number() || !is_sent)
            }
        }
    }

    fn now(&self) -> Instant {
        self.client.topology().engine().now()
    }
}

/// Publishes the events of one command, if a sink wants them. If this value is dropped before the
/// last event, it publishes a failed event, so that every started event is followed by a succeeded
/// or failed event (Command Logging and Monitoring: "Guarantees").
struct CommandEvents<'c> {
    engine: &'c Engine,
    started: Instant,
    /// `None` after the command's last event, or if no sink wants events.
    info: Option<Arc<CommandInfo>>,
}

impl<'c> CommandEvents<'c> {
    fn begin(
        operation: &Operation<'c>,
        server: &SelectedServer<Pool>,
        connection: &PooledConnection,
        document: &[u8],
    ) -> Self {
        let engine = &**operation.client.topology().engine();
        let started = engine.now();
        let events = &engine.events;
        let is_wanted = events.wants_any(Interest::COMMANDS) && events.admits_operation(started);
        let info = is_wanted.then(|| {
            let database = operation.command.database;
            let request = operation.client.next_request();
            let server = (server.id(), server.address().clone());
            let mut info = CommandInfo::new(document, database, request, server, connection.id());
            info.operation_id = Some(operation.id);
            info.service_id = connection.service_id();
            let info = Arc::new(info);
            events.push(started, info.started(document));
            info
        });
        Self { engine, started, info }
    }

    fn succeeded(mut self, reply: &[u8]) {
        self.end(|info, duration| info.succeeded(duration, reply));
    }

    fn failed(mut self, error: Error) {
        self.end(|info, duration| info.failed(duration, error));
    }

    fn end(&mut self, event: impl FnOnce(&Arc<CommandInfo>, Duration) -> EventKind) {
        if let Some(info) = self.info.take() {
            let now = self.engine.now();
            let event = event(&info, now.since(self.started));
            self.engine.events.push(now, event);
        }
    }
}

impl Drop for CommandEvents<'_> {
    fn drop(&mut self) {
        let (kind, stage) = (ErrorKind::Cancelled, Stage::Operation);
        self.end(|info, duration| {
            let error = Error::new(kind, stage, "the caller has dropped the operation");
            info.failed(duration, error)
        });
    }
}

/// Returns whether the state of the session is known, because the server has replied or was sent
/// nothing.
pub(super) fn is_answered(outcome: &Result<CommandReply, Error>) -> bool {
    let is_known = |error: &Error| error.reply().is_some() || error.kind() == ErrorKind::Invalid;
    outcome.as_ref().err().is_none_or(is_known)
}

/// Returns the error if a write, or waiting for its write concern, exceeded `maxTimeMS` (Client
/// Side Operations Timeout: "Error Transformations").
fn expired(reply: &CommandReply) -> Option<Error> {
    let is_expired = |code| code == Some(MAX_TIME_MS_EXPIRED);
    if let Some(error) = reply.write_concern_error()
        && is_expired(error.code())
    {
        return Some(error.clone());
    }
    let mut errors = reply.write_errors().into_iter();
    let error = errors.find(|error| is_expired(error.code))?;
    Some(Error::new(ErrorKind::Write, Stage::Operation, error.message).with_code(error.code))
}

/// Checks out a connection, waiting at most until `by` if it is set.
pub(super) async fn check_out(pool: &Pool, by: Option<Instant>) -> Result<PooledConnection, Error> {
    match by {
        Some(deadline) => pool.check_out_within(deadline).await,
        None => pool.check_out().await,
    }
}

/// Returns whether the label `RetryableWriteError` applies to the error of a write (Retryable
/// Writes: "RetryableWriteError Labels").
fn is_retryable_write(
    server: &SelectedServer<Pool>,
    connection: Option<&PooledConnection>,
    error: &Error,
) -> bool {
    let max_wire_version = connection
        .map_or(server.wire_versions(), |connection| connection.hello().wire_versions)
        .max;
    // Write concern errors from an old mongos are not retryable, and a new mongos adds the label
    // itself.
    let counts = server.server_type() != ServerType::Mongos
        || error.reply().is_none_or(|body| !reply::is_ok(body));
    counts && error.is_retryable_write(max_wire_version)
}

/// Returns the error for a command to which no field can be added.
fn malformed(command: &Command<'_>, error: MalformedDocument) -> Error {
    let message = "the command cannot be encoded";
    let error = Error::new(ErrorKind::Invalid, Stage::Operation, message).with_source(error);
    of_command(command, error)
}

/// Returns the error for a command with `field`, which the client adds itself.
fn reserved(command: &Command<'_>, field: &str) -> Error {
    let message =
        format!("the command has the field `{field}`, which the client adds: leave it out");
    of_command(command, Error::new(ErrorKind::Invalid, Stage::Operation, message))
}

/// Returns the error for a command whose remaining time is too short.
fn without_time(command: &Command<'_>) -> Error {
    let message = "the time limit is too short for a round trip to the server";
    of_command(command, Error::new(ErrorKind::TimeLimit, Stage::Operation, message))
}

/// Adds the command and the reply to `error`, which was found in a `reply` with `ok: 1`.
fn in_reply(command: &Command<'_>, error: Error, reply: &CommandReply) -> Error {
    of_command(command, error.with_reply(reply.body()))
}

/// Adds the name of the command to the error.
pub(super) fn of_command(command: &Command<'_>, error: Error) -> Error {
    error.with_command(CommandInfo::name_of(command.document))
}

/// A server session in use by an operation. Dropping this value returns the session to the client's
/// pool.
pub(super) struct Lease {
    client: Client,
    /// `None` only while this value is dropped.
    session: Option<ServerSession>,
    timeout: Option<Duration>,
    /// Set for a retryable write.
    transaction: Option<Transaction>,
    /// True if a command was sent and not answered.
    in_flight: bool,
}

/// The fields to send with a command (Driver Sessions: "Sending the session ID to the server on all
/// commands").
#[derive(Clone, Copy)]
pub(super) enum Sent {
    Session(SessionId),
    Transaction(Transaction),
}

impl Sent {
    pub(super) fn append_to(self, command: &mut DocumentWriter) {
        match self {
            Self::Session(session) => session.append_to(command),
            Self::Transaction(transaction) => transaction.append_to(command),
        }
    }
}

impl Lease {
    /// Takes a session from the client's pool, if the server of `connection` supports sessions.
    pub(super) fn acquire(
        client: &Client,
        server: &SelectedServer<Pool>,
        connection: &PooledConnection,
    ) -> Option<Self> {
        let engine = client.topology().engine();
        let balanced = server.server_type() == ServerType::LoadBalancer;
        let minutes = connection.hello().logical_session_timeout_minutes;
        let timeout = match minutes {
            // Load Balancers: "Session Expiration".
            _ if balanced => None,
            Some(minutes) => {
                Some(Duration::from_secs(60 * u64::try_from(minutes).unwrap_or_default()))
            }
            None => return None,
        };
        let random = || engine.common.backend.unique_bytes();
        let session = client.sessions().acquire(engine.now(), timeout, random);
        let (client, session) = (client.clone(), Some(session));
        Some(Self { client, session, timeout, transaction: None, in_flight: false })
    }

    /// Assigns a transaction number to the operation. All its attempts use the same number.
    pub(super) fn begin_transaction(&mut self) {
        if self.transaction.is_none() {
            self.transaction = self.session.as_mut().map(ServerSession::next_transaction);
        }
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Records that a command is being sent with the session, and returns the fields to add to it.
    pub(super) fn send(&mut self) -> Option<Sent> {
        self.in_flight = true;
        let now = self.client.topology().engine().now();
        let session = self.session.as_mut()?;
        session.used(now);
        Some(self.transaction.map_or(Sent::Session(session.id()), Sent::Transaction))
    }

    /// Records that the command has ended. The session becomes dirty if there was no reply.
    pub(super) fn answered(&mut self, is_answered: bool) {
        self.in_flight = false;
        if let Some(session) = self.session.as_mut().filter(|_| !is_answered) {
            session.mark_dirty();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.in_flight {
            self.answered(false);
        }
        if let Some(session) = self.session.take() {
            let now = self.client.topology().engine().now();
            self.client.sessions().release(session, now, self.timeout);
        }
    }
}

sdam_core::opaque!(Lease, |this| session: this.session, transaction: this.transaction);
