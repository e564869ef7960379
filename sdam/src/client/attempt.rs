use std::{sync::Arc, time::Duration};

use sdam_core::{
    error::{ErrorKind, ServerError, Stage},
    pool::PoolError,
    reply,
    server::ServerType,
    session::{ServerSession, Transaction},
    time::Instant,
};
use sdam_pool::{Pool, PooledConnection};
use sdam_transport::{pool::CommandReply, race};

use super::{
    Client,
    command::{Command, Kind},
    error::{CommandError, CommandErrorKind, RETRYABLE_WRITE_ERROR},
    events::CommandEvents,
    retry::{Failure, Policy},
};
use crate::select::selected::SelectedServer;

/// The codes after which a read may be retried (Retryable Reads: "Retryable Error").
const RETRYABLE_READ_CODES: [i32; 13] = [
    262, 11600, 11602, 10107, 13435, 13436, 189, 134, 91, 7, 6, 89, 9001,
];

/// The codes after which a write may be retried if the server is too old to say that itself
/// (Retryable Writes: "RetryableWriteError Labels").
const RETRYABLE_WRITE_CODES: [i32; 12] = [
    11600, 11602, 10107, 13435, 13436, 189, 91, 7, 6, 89, 9001, 262,
];

/// The wire version of MongoDB 4.4, the first version whose servers label their errors.
const LABELS_WIRE_VERSION: i32 = 9;

/// One command with all its attempts.
pub(super) struct Operation<'c> {
    client: &'c Client,
    command: &'c Command<'c>,
    deadline: Option<Instant>,
    /// The number that selections and commands of the operation carry in their events.
    pub(super) id: i64,
    /// Whether an attempt has failed.
    pub(super) is_retry: bool,
    lease: Option<Lease>,
}

/// A session in use.
struct Lease {
    session: ServerSession,
    transaction: Transaction,
    timeout: Option<Duration>,
    /// Whether a command was sent and not answered.
    in_flight: bool,
}

/// The outcome of one attempt.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each command that succeeds"
)]
pub(super) enum Attempt {
    Replied(CommandReply),
    Failed(Box<Failure>),
    /// The write cannot be retried on this server.
    Unsupported,
}

impl<'c> Operation<'c> {
    pub(super) fn new(
        client: &'c Client,
        command: &'c Command<'c>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            client,
            command,
            deadline,
            id: client.next_operation(),
            is_retry: false,
            lease: None,
        }
    }

    pub(super) fn policy(&self) -> Policy {
        let settings = &self.client.0.settings;
        Policy {
            is_enabled: match self.command.kind {
                // Client Backpressure: "To retry runCommand, both MUST be enabled".
                Kind::Generic => settings.retry_reads && settings.retry_writes,
                Kind::Read => settings.retry_reads,
                Kind::Write => settings.retry_writes,
            },
            has_deadline: self.deadline.is_some(),
            max_adaptive_retries: settings.max_adaptive_retries,
        }
    }

    /// Runs the command once on `server`.
    pub(super) async fn attempt(&mut self, server: &SelectedServer<Pool>) -> Attempt {
        let mut connection = match self.check_out(server).await {
            Ok(connection) => connection,
            Err(error) => return self.failed(server, None, error, false),
        };
        if self.retries_write() {
            let timeout = connection.hello().logical_session_timeout_minutes;
            match timeout.filter(|_| server.server_type() != ServerType::Standalone) {
                Some(minutes) => self.begin_transaction(server, minutes),
                None if self.is_retry => return Attempt::Unsupported,
                None => {}
            }
        }
        let now = self.now();
        let timeout = match self.deadline {
            Some(deadline) if now >= deadline => {
                let error = self.late(CommandErrorKind::Connection(ServerError::new(
                    ErrorKind::Timeout,
                    Stage::Operation,
                    "the time limit of the operation has passed",
                )));
                return self.failed(server, None, error, false);
            }
            Some(deadline) => Some(deadline.since(now)),
            None => self.client.0.settings.socket_timeout,
        };
        let transaction = self.lease.as_mut().map(|lease| {
            lease.in_flight = true;
            lease.session.used(now);
            lease.transaction
        });
        let sent = Sent {
            client: self.client,
            server,
            command: self.command,
            operation: self.id,
            timeout,
            transaction,
        };
        match sent.run(&mut connection).await {
            Ok(reply) => {
                self.answered(true);
                self.accept(server, &connection, reply)
            }
            Err(error) => {
                self.answered(error.body().is_some());
                self.failed(server, Some(&connection), error, true)
            }
        }
    }

    async fn check_out(
        &self,
        server: &SelectedServer<Pool>,
    ) -> Result<PooledConnection, CommandError> {
        let clock = &*self.client.topology().shared().io.clock;
        match race::deadline(clock, self.deadline, server.pool().check_out()).await {
            Ok(result) => result.map_err(|error| CommandError::pool(self.command, error)),
            Err(_) => Err(self.late(CommandErrorKind::Pool(PoolError::TimedOut {
                address: server.address().clone(),
            }))),
        }
    }

    fn late(&self, kind: CommandErrorKind) -> CommandError {
        CommandError::new(self.command, kind)
    }

    /// Returns whether the command is a write that is retried (Retryable Writes).
    fn retries_write(&self) -> bool {
        let settings = &self.client.0.settings;
        self.command.kind == Kind::Write && self.command.is_retryable && settings.retry_writes
    }

    /// Numbers the write; a retry keeps the number.
    fn begin_transaction(&mut self, server: &SelectedServer<Pool>, minutes: i32) {
        if self.lease.is_some() {
            return;
        }
        let balanced = server.server_type() == ServerType::LoadBalancer;
        let minutes = u64::try_from(minutes).unwrap_or_default();
        let timeout = (!balanced).then(|| Duration::from_secs(60 * minutes));
        let random = || self.client.topology().shared().io.unique_bytes();
        let now = self.now();
        let mut session = self.client.sessions().acquire(now, timeout, random);
        self.lease = Some(Lease {
            transaction: session.next_transaction(),
            session,
            timeout,
            in_flight: false,
        });
    }

    /// Ends the use of the session by an attempt, with or without a reply.
    fn answered(&mut self, is_answered: bool) {
        if let Some(lease) = &mut self.lease {
            lease.in_flight = false;
            if !is_answered {
                lease.session.mark_dirty();
            }
        }
    }

    /// Returns the outcome of a reply with `ok: 1`, which may have an error of the write concern.
    fn accept(
        &self,
        server: &SelectedServer<Pool>,
        connection: &PooledConnection,
        reply: CommandReply,
    ) -> Attempt {
        let Some(error) = reply.write_concern_error().filter(|_| self.lease.is_some()) else {
            return Attempt::Replied(reply);
        };
        let error = CommandError::write_concern(self.command, error.clone(), &reply);
        match self.failed(server, Some(connection), error, true) {
            Attempt::Failed(failure) if failure.is_retryable => {
                Attempt::Failed(Box::new(Failure {
                    accepted: Some(reply),
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
        error: CommandError,
        is_sent: bool,
    ) -> Attempt {
        let mut error = error.at(server.address());
        if self.retries_write() && Self::labels_as_retryable(server, connection, &error) {
            error.add_label(RETRYABLE_WRITE_ERROR);
        }
        Attempt::Failed(Box::new(Failure {
            is_retryable: self.allows_retry(server, &error, is_sent),
            base_backoff: error.body().and_then(reply::base_backoff),
            error,
            is_sent,
            accepted: None,
        }))
    }

    /// Returns whether the client adds the label to the error of a write (Retryable Writes:
    /// "RetryableWriteError Labels").
    fn labels_as_retryable(
        server: &SelectedServer<Pool>,
        connection: Option<&PooledConnection>,
        error: &CommandError,
    ) -> bool {
        match error.kind() {
            CommandErrorKind::Pool(error) => error.is_retryable(),
            CommandErrorKind::Connection(error) => error.is_network(),
            CommandErrorKind::Reply(reply) => {
                let is_old = connection.is_some_and(|connection| {
                    connection.hello().wire_versions.max < LABELS_WIRE_VERSION
                });
                // The write concern errors of an old mongos do not count.
                let counts = server.server_type() != ServerType::Mongos
                    || error.body().is_some_and(|body| !reply::is_ok(body));
                is_old && counts && has_code(reply, &RETRYABLE_WRITE_CODES)
            }
            _ => false,
        }
    }

    fn allows_retry(
        &self,
        server: &SelectedServer<Pool>,
        error: &CommandError,
        is_sent: bool,
    ) -> bool {
        match self.command.kind {
            Kind::Generic => false,
            Kind::Read if !self.command.is_retryable => false,
            Kind::Read => match error.kind() {
                CommandErrorKind::Pool(error) => error.is_retryable(),
                CommandErrorKind::Connection(error) | CommandErrorKind::Reply(error) => {
                    error.is_network() || has_code(error, &RETRYABLE_READ_CODES)
                }
                _ => false,
            },
            // A write without a number was sent to a server that would run it twice.
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

/// One command on one connection.
pub(super) struct Sent<'c> {
    pub(super) client: &'c Client,
    pub(super) server: &'c SelectedServer<Pool>,
    pub(super) command: &'c Command<'c>,
    pub(super) operation: i64,
    pub(super) timeout: Option<Duration>,
    pub(super) transaction: Option<Transaction>,
}

impl Sent<'_> {
    /// Runs the command and publishes its events.
    pub(super) async fn run(
        self,
        connection: &mut PooledConnection,
    ) -> Result<CommandReply, CommandError> {
        let command = self.command;
        let shared = self.client.topology().shared();
        let api = shared.options.server_api.as_ref();
        let settings = &self.client.0.settings;
        let document = command
            .encode(self.server, settings, api, self.transaction)
            .map_err(|error| CommandError::new(command, CommandErrorKind::Malformed(error)))?;
        let events = CommandEvents::begin(&self, connection, &document);
        let reply = match connection.run_command(&document, self.timeout).await {
            Ok(reply) => reply,
            Err(error) => {
                let failure = error.server_error().cloned();
                let failure = failure.unwrap_or_else(|| {
                    ServerError::new(ErrorKind::Network, Stage::Operation, error.to_string())
                });
                events.failed(Arc::new(failure));
                return Err(CommandError::pool(command, error));
            }
        };
        events.succeeded(reply.body());
        Ok(reply)
    }
}

fn has_code(error: &ServerError, codes: &[i32]) -> bool {
    error.code.is_some_and(|code| codes.contains(&code))
}
