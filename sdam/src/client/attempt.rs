use std::time::Duration;

use sdam_core::{
    error::{Error, ErrorKind, MAX_TIME_MS_EXPIRED, RETRYABLE_WRITE_ERROR, Stage},
    reply,
    server::ServerType,
    session::{ServerSession, Transaction},
    time::Instant,
};
use sdam_pool::{Pool, PooledConnection};
use sdam_transport::pool::CommandReply;

use super::{
    Client,
    command::{Command, Kind},
    error,
    events::CommandEvents,
    limit::{Budget, Limit},
    retry::{Failure, Policy},
};
use crate::select::selected::SelectedServer;

/// The default of `maxAdaptiveRetries` (Client Backpressure: `MAX_RETRIES`).
const MAX_ADAPTIVE_RETRIES: u32 = 2;

/// A command and the attempts to run it.
pub(super) struct Operation<'c> {
    pub(super) client: &'c Client,
    pub(super) command: &'c Command<'c>,
    limit: Limit,
    /// The operation id in selection and command events.
    pub(super) id: i64,
    /// True if a retried write needs a transaction number, because an attempt failed for a reason
    /// other than overload.
    pub(super) needs_number: bool,
    lease: Option<Lease>,
}

/// A session in use.
struct Lease {
    session: ServerSession,
    transaction: Transaction,
    timeout: Option<Duration>,
    /// True if a command was sent and not answered.
    in_flight: bool,
}

/// The outcome of one attempt.
pub(super) enum Attempt {
    Replied(CommandReply),
    Failed(Box<Failure>),
    /// The write cannot be retried on this server.
    Unsupported,
}

impl<'c> Operation<'c> {
    pub(super) fn new(client: &'c Client, command: &'c Command<'c>, limit: Limit) -> Self {
        Self {
            client,
            command,
            limit,
            id: client.next_operation(),
            needs_number: false,
            lease: None,
        }
    }

    pub(super) fn policy(&self) -> Policy {
        let driver = self.client.driver();
        let (reads, writes) = (driver.retry_reads() != Some(false), self.is_retrying_writes());
        Policy {
            is_enabled: match self.command.kind {
                // Client Backpressure: "To retry runCommand, both MUST be enabled".
                Kind::Generic => reads && writes,
                Kind::Read => reads,
                Kind::Write => writes,
            },
            has_limit: self.limit.is_set(),
            max_adaptive_retries: driver.max_adaptive_retries().unwrap_or(MAX_ADAPTIVE_RETRIES),
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
                let error = error::of(self.command, error);
                return self.failed(server, None, error, false);
            }
        };
        if self.retries_write() {
            let timeout = connection.hello().logical_session_timeout_minutes;
            match timeout.filter(|_| server.server_type() != ServerType::Standalone) {
                Some(minutes) => self.begin_transaction(server, minutes),
                None if self.needs_number => return Attempt::Unsupported,
                None => {}
            }
        }
        let now = self.now();
        let budget = match self.budget(server) {
            Ok(budget) => budget,
            Err(error) => return self.failed(server, Some(&connection), error, false),
        };
        let transaction = self.lease.as_mut().map(|lease| {
            lease.in_flight = true;
            lease.session.used(now);
            lease.transaction
        });
        match self.send(server, &mut connection, budget, transaction).await {
            Ok(reply) => {
                self.answered(true);
                self.accept(server, &connection, reply)
            }
            Err(error) => {
                self.answered(error.reply().is_some());
                self.failed(server, Some(&connection), error, true)
            }
        }
    }

    /// Runs the command on `connection` and publishes its events.
    pub(super) async fn send(
        &self,
        server: &SelectedServer<Pool>,
        connection: &mut PooledConnection,
        budget: Budget,
        transaction: Option<Transaction>,
    ) -> Result<CommandReply, Error> {
        let command = self.command;
        let document = command
            .encode(server, self.client, transaction, (self.limit, budget))
            .map_err(|error| error::malformed(command, error))?;
        let events = CommandEvents::begin(self, server, connection, &document);
        let reply = match connection.run_command(&document, budget.timeout).await {
            Ok(reply) => reply,
            Err(error) => {
                // Command Monitoring: a command that is interrupted because its pool is cleared
                // fails with a network error.
                events.failed(match error.kind() {
                    ErrorKind::Interrupted => Error::network(Stage::Operation, error.to_string()),
                    _ => error.clone(),
                });
                return Err(error::of(command, error));
            }
        };
        events.succeeded(reply.body());
        match expired(&reply) {
            Some(error) if self.limit.is_set() => Err(error::in_reply(command, error, &reply)),
            _ => Ok(reply),
        }
    }

    /// Returns the time limits of the command's exchange with `server`.
    pub(super) fn budget(&self, server: &SelectedServer<Pool>) -> Result<Budget, Error> {
        let minimum = server.rtt().map_or(Duration::ZERO, |rtt| rtt.minimum);
        let socket_timeout = self.client.driver().socket_timeout();
        let budget = self.limit.budget(self.now(), minimum, socket_timeout);
        budget.ok_or_else(|| error::without_time(self.command))
    }

    /// Returns whether the command is a write that may be retried (Retryable Writes).
    fn retries_write(&self) -> bool {
        let Command { kind, is_retryable, .. } = self.command;
        *kind == Kind::Write && *is_retryable && self.is_retrying_writes()
    }

    fn is_retrying_writes(&self) -> bool {
        self.client.driver().retry_writes() != Some(false)
    }

    /// Assigns a session and a transaction number to the write; a retry keeps them.
    fn begin_transaction(&mut self, server: &SelectedServer<Pool>, minutes: i32) {
        if self.lease.is_some() {
            return;
        }
        let balanced = server.server_type() == ServerType::LoadBalancer;
        let minutes = u64::try_from(minutes).unwrap_or_default();
        let timeout = (!balanced).then(|| Duration::from_secs(60 * minutes));
        let random = || self.client.topology().shared().common.backend.unique_bytes();
        let now = self.now();
        let mut session = self.client.sessions().acquire(now, timeout, random);
        self.lease = Some(Lease {
            transaction: session.next_transaction(),
            session,
            timeout,
            in_flight: false,
        });
    }

    /// Records that an attempt no longer uses the session. The session becomes dirty if there was
    /// no reply.
    fn answered(&mut self, is_answered: bool) {
        if let Some(lease) = &mut self.lease {
            lease.in_flight = false;
            if !is_answered {
                lease.session.mark_dirty();
            }
        }
    }

    /// Returns the outcome of a reply with `ok: 1`, which may contain a write concern error.
    fn accept(
        &self,
        server: &SelectedServer<Pool>,
        connection: &PooledConnection,
        reply: CommandReply,
    ) -> Attempt {
        let Some(error) = reply.write_concern_error().filter(|_| self.lease.is_some()) else {
            return Attempt::Replied(reply);
        };
        let error = error::in_reply(self.command, error.clone(), &reply);
        match self.failed(server, Some(connection), error, true) {
            Attempt::Failed(failure) if failure.is_retryable => {
                // Old servers do not label the error themselves.
                Attempt::Failed(Box::new(Failure {
                    accepted: Some(reply.with_label(RETRYABLE_WRITE_ERROR)),
                    ..*failure
                }))
            }
            _ => Attempt::Replied(reply),
        }
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
            Kind::Read if !self.command.is_retryable => false,
            Kind::Read => error.is_retryable_read(),
            // A retried write without a transaction number could run twice.
            Kind::Write => {
                self.retries_write()
                    && server.server_type() != ServerType::Standalone
                    && error.has_label(RETRYABLE_WRITE_ERROR)
                    && (self.lease.is_some() || !is_sent)
            }
        }
    }

    fn now(&self) -> Instant {
        self.client.topology().shared().now()
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if let Some(mut lease) = self.lease.take() {
            if lease.in_flight {
                lease.session.mark_dirty();
            }
            let now = self.now();
            let mut sessions = self.client.sessions();
            sessions.release(lease.session, now, lease.timeout);
        }
    }
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
    Some(Error::new(ErrorKind::Command, Stage::Operation, error.message).with_code(error.code))
}

/// Checks out a connection, waiting at most until `by` if it is set.
pub(super) async fn check_out(pool: &Pool, by: Option<Instant>) -> Result<PooledConnection, Error> {
    match by {
        Some(deadline) => pool.check_out_within(deadline).await,
        None => pool.check_out().await,
    }
}

/// Returns whether the error of a write is labelled `RetryableWriteError` (Retryable Writes:
/// "RetryableWriteError Labels").
fn is_retryable_write(
    server: &SelectedServer<Pool>,
    connection: Option<&PooledConnection>,
    error: &Error,
) -> bool {
    let max_wire_version = connection
        .map_or(server.wire_versions(), |connection| connection.hello().wire_versions)
        .max;
    // Write concern errors from an old mongos are not retryable, and a new mongos labels them
    // itself.
    let counts = server.server_type() != ServerType::Mongos
        || error.reply().is_none_or(|body| !reply::is_ok(body));
    counts && error.is_retryable_write(max_wire_version)
}
