//! A client that runs single commands: it selects a server, checks out a connection, runs the
//! command, and retries it as the specifications allow.
//!
//! The client is not a driver: it has no collections, cursors, transactions or compression.

mod attempt;
mod command;
mod retry;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    options::{Acknowledgment, ConfigError, Options, Warning},
    read_preference::{ReadMode, ReadPreference},
    session::{ClusterTime, SessionPool},
    time::Instant,
};
use sdam_events::sink::Interest;
use sdam_pool::{Pool, PooledConnection, Pools};
use sdam_select::criteria::Criteria;
use sdam_transport::{pool::CommandReply, race, runtime::Runtime};

pub use self::command::Command;
use self::{
    attempt::{Attempt, Lease, Operation, Writes, check_out, is_answered, of_command},
    retry::{Limit, Retry},
};
use crate::{
    select::{error::SelectionError, selected::SelectedServer},
    topology::{Topology, TopologyBuilder},
};

/// A client for a deployment, with a monitored topology and a connection pool for each server.
///
/// Cloning only increments a reference count.
///
/// ```no_run
/// use bson::rawdoc;
/// use sdam::client::{Client, Command};
///
/// # #[cfg(feature = "runtime-tokio")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::start("mongodb://db-0.example.com/?replicaSet=rs0", sdam::runtime::tokio()?)?;
/// let insert = rawdoc! { "insert": "people", "documents": [{ "name": "Ada" }] };
/// client.run(&Command::write("test", insert.as_bytes())).await?;
/// let find = rawdoc! { "find": "people", "filter": { "name": "Ada" } };
/// let reply = client.run(&Command::read("test", find.as_bytes())).await?;
/// println!("{:?}", bson::RawDocument::from_bytes(reply.body())?);
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    topology: Topology<Pool>,
    /// The default criteria for reads.
    read: Criteria,
    sessions: Mutex<SessionPool>,
    cluster_time: ArcSwapOption<ClusterTime>,
    operations: AtomicI64,
    requests: AtomicU32,
}

impl Client {
    /// Starts a client from a connection string. Performs no I/O and does not wait.
    /// [`TopologyBuilder::client`](crate::TopologyBuilder::client) starts a client with options,
    /// sinks and an authenticator of your own.
    ///
    /// # Errors
    ///
    /// If the connection string is malformed or contradicts itself.
    pub fn start(uri: &str, runtime: Runtime) -> Result<Self, ConfigError> {
        Topology::builder(uri)?.client(runtime)
    }

    /// Returns the client's topology.
    pub fn topology(&self) -> &Topology<Pool> {
        &self.0.topology
    }

    /// Runs a command and returns the reply.
    ///
    /// Takes up to `timeoutMS`, or the time limit of the command, in total. Without either, each
    /// attempt takes up to `serverSelectionTimeoutMS`, `waitQueueTimeoutMS` and `socketTimeoutMS`.
    ///
    /// A [read](Command::read) or [write](Command::write) is retried once or, with a time limit,
    /// until the limit has passed (Retryable Reads, Retryable Writes). Any command refused by an
    /// overloaded server is retried up to `maxAdaptiveRetries` times, after a random backoff
    /// (Client Backpressure).
    ///
    /// The commands of a cursor need a [pinned connection](Self::pin), which keeps the session of
    /// the cursor.
    ///
    /// # Errors
    ///
    /// The most relevant error among all attempts, with the name of the command, the server and the
    /// number of [retries](Error::retries). It has already been reported to the topology.
    ///
    /// If some writes of the command failed, or their write concern was not met, the kind is
    /// [`ErrorKind::Write`], and the error has the reply.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Whether the command took effect is then unknown.
    pub async fn run(&self, command: &Command<'_>) -> Result<CommandReply, Error> {
        self.run_with(command, Writes::Checked).await
    }

    /// Runs a command like [`run`](Self::run), but also returns a reply that contains write errors
    /// or a write concern error, for programs that read these errors from the reply.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), except that failed writes and unmet write concerns are not errors.
    /// With a time limit, a write that the server has stopped because of `maxTimeMS` is still an
    /// error.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_raw(&self, command: &Command<'_>) -> Result<CommandReply, Error> {
        self.run_with(command, Writes::Raw).await
    }

    async fn run_with(&self, command: &Command<'_>, writes: Writes) -> Result<CommandReply, Error> {
        let engine = self.topology().engine();
        let limit = self.limit(command);
        let criteria = command.criteria(&self.0.read, &Criteria::primary());
        let mut operation = Operation::new(self, command, criteria, (limit, writes))?;
        let mut retry = Retry::new(operation.policy());
        let mut criteria = self.named(&operation);
        loop {
            let check_out_by = self.check_out_by(limit);
            let server = match self.select(&criteria, limit).await {
                Ok(server) => server,
                Err(error) => {
                    let is_late = limit.has_passed(engine.now());
                    return retry.end(of_command(command, unselected(error)), is_late);
                }
            };
            let failure = match operation.attempt(&server, check_out_by).await {
                Attempt::Replied(reply) => return Ok(reply),
                Attempt::Failed(failure) => *failure,
                // Retryable Writes: the error from the previous attempt is returned.
                Attempt::Unsupported => return retry.give_up(false),
            };
            let is_late = limit.is_set() && failure.error.is_timeout();
            operation.needs_number |= !failure.error.is_retryable_overload();
            criteria = server.criteria_after(criteria, &failure.error);
            drop(server);
            let Some(backoff) = retry.failed(failure, engine.common.random().0) else {
                return retry.give_up(is_late);
            };
            let now = engine.now();
            let next = now + backoff;
            if limit.has_passed(next) {
                return retry.give_up(limit.has_passed(now));
            }
            if !backoff.is_zero() {
                engine.common.backend.clock.sleep_until(next).await;
            }
        }
    }

    /// Checks out a connection for several commands, such as the `getMore` of a cursor. The
    /// connection is kept until the result is dropped. Takes up to `timeoutMS` or, if that is not
    /// set, up to `serverSelectionTimeoutMS` and `waitQueueTimeoutMS`.
    ///
    /// Without `criteria`, selects the primary.
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Self::run), except those in the reply to a command.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time without side effects.
    pub async fn pin(
        &self,
        criteria: impl Into<Option<Criteria>>,
    ) -> Result<PinnedConnection, Error> {
        let criteria = criteria.into().unwrap_or_else(Criteria::primary);
        PinnedConnection::check_out(self, criteria).await
    }

    /// Ends the sessions of this client on the server, and closes the topology and its pools; see
    /// [`Topology::close`].
    ///
    /// # Cancel safety
    ///
    /// If the future was dropped, call `close` again, or drop every clone of the client.
    pub async fn close(&self) {
        let patience = self.topology().engine().now() + Self::END_SESSIONS_PATIENCE;
        let clock = Arc::clone(&self.topology().engine().common.backend.clock);
        // Driver Sessions: errors from `endSessions` are ignored.
        let _ = race::deadline(&*clock, Some(patience), Box::pin(self.end_sessions())).await;
        self.topology().close().await;
    }

    /// The maximum time that [`close`](Self::close) takes to end the sessions on the server.
    pub(crate) const END_SESSIONS_PATIENCE: Duration = Duration::from_secs(2);

    async fn end_sessions(&self) {
        // Driver Sessions: sessions are ended on the primary, or on any secondary if there is none.
        let anywhere = ReadPreference::new(ReadMode::PrimaryPreferred);
        let Ok(criteria) = Criteria::read(anywhere) else {
            return;
        };
        // If no server is available, the sessions are kept for the next call to `close`.
        while let Ok(Some(server)) = self.topology().try_select(&criteria) {
            let Some(command) = self.sessions().end_command() else {
                return;
            };
            let command = Command::new("admin", &command);
            let settings = (Limit::Unset, Writes::Raw);
            if let Ok(mut end) = Operation::new(self, &command, Criteria::primary(), settings) {
                let _ = end.attempt(&server, None).await;
            }
        }
    }

    async fn select(
        &self,
        criteria: &Criteria,
        limit: Limit,
    ) -> Result<SelectedServer<Pool>, SelectionError> {
        let engine = self.topology().engine();
        let within = match limit {
            Limit::Unset => return self.topology().select(criteria).await,
            Limit::Endless => engine.common.options.server_selection_timeout,
            Limit::At(deadline) => deadline.since(engine.now()),
        };
        self.topology().select_within(criteria, within).await
    }

    /// Returns the time by which an operation must have checked out its connection if its selection
    /// begins now (Client Side Operations Timeout: "Server Selection").
    fn check_out_by(&self, limit: Limit) -> Option<Instant> {
        let engine = self.topology().engine();
        limit.check_out_by(engine.now(), engine.common.options.server_selection_timeout)
    }

    fn sessions(&self) -> MutexGuard<'_, SessionPool> {
        let sessions = self.0.sessions.lock();
        sessions.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the cluster time in a reply, if it is newer.
    fn note_cluster_time(&self, reply: &[u8]) {
        let known = self.0.cluster_time.load();
        if let Some(newer) = ClusterTime::newer(reply, known.as_deref()) {
            let newer = Arc::new(newer);
            self.0.cluster_time.rcu(|known| {
                let is_newer = known.as_deref().is_none_or(|known| *newer > *known);
                if is_newer { Some(Arc::clone(&newer)) } else { known.clone() }
            });
        }
    }

    fn limit(&self, command: &Command<'_>) -> Limit {
        // A `timeoutMS` of 0 means no limit, and also overrides the deprecated timeout options.
        Limit::new(command.timeout.or(self.options().timeout), self.topology().engine().now())
    }

    /// Returns the criteria for the selections of an operation. If a sink wants selection events,
    /// the criteria include the command's name and the operation's id.
    fn named(&self, operation: &Operation<'_>) -> Criteria {
        let criteria = operation.criteria.clone();
        if !self.topology().engine().events.wants_any(Interest::SELECTION) {
            return criteria;
        }
        criteria.with_operation_name(operation.fields.name).with_operation_id(operation.id)
    }

    fn options(&self) -> &Options {
        &self.topology().engine().common.options
    }

    fn next_operation(&self) -> i64 {
        self.0.operations.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the next request id, which is not negative.
    fn next_request(&self) -> i32 {
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1);
        i32::try_from(number).unwrap_or_default()
    }
}

sdam_core::opaque!(Client, |this| topology: this.topology(), read: this.0.read);

impl TopologyBuilder {
    /// Starts monitoring, pools and a client on `runtime`. Performs no I/O itself and does not
    /// wait.
    ///
    /// Connections are authenticated as the options say, or with an
    /// [authenticator](Self::authenticator) of your own.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start) and [`authenticate`](Self::authenticate); and if `w` is 0, because
    /// a client waits for the reply to every write. Compression options are ignored, with a
    /// warning.
    pub fn client(mut self, runtime: Runtime) -> Result<Client, ConfigError> {
        self.options.validate()?;
        self = self.authenticate()?;
        let options = &mut self.options;
        check_write_concern(options)?;
        let preference = &options.read_preference;
        let read = Criteria::read(preference.clone()).map_err(|error| {
            let (value, reason) = (preference.to_string(), error.to_string());
            ConfigError::new("readPreference", value, reason, "choose another one")
        })?;
        for warning in ignored_options(options) {
            options.warn(warning);
        }
        Ok(Client(Arc::new(Inner {
            topology: self.pools(Pools::new()).start(runtime)?,
            read,
            sessions: Mutex::new(SessionPool::default()),
            cluster_time: ArcSwapOption::empty(),
            operations: AtomicI64::new(1),
            requests: AtomicU32::new(1),
        })))
    }
}

/// A connection that several commands share, such as the commands of a cursor. Dropping this value
/// checks the connection in.
///
/// Behind a load balancer, the commands of a cursor have to use one connection (Load Balancers:
/// "Connection Pinning"). On other topologies they have to use one server. All commands use the
/// same session, as the commands of a cursor must (Driver Sessions: "Cursors").
#[derive(Debug)]
pub struct PinnedConnection {
    client: Client,
    connection: PooledConnection,
    /// The criteria for commands that have none.
    criteria: Criteria,
    /// `None` before the first command that needs a session.
    lease: Option<Lease>,
    /// The selected server. While this field holds it, one operation is counted as in progress on
    /// that server.
    server: SelectedServer<Pool>,
}

impl PinnedConnection {
    async fn check_out(client: &Client, criteria: Criteria) -> Result<Self, Error> {
        let none = Command::new("", &[]);
        let limit = client.limit(&none);
        let check_out_by = client.check_out_by(limit);
        let server = client.select(&criteria, limit).await.map_err(unselected)?;
        let connection = check_out(server.pool(), check_out_by).await;
        let connection = connection.map_err(|error| error.with_address(server.address()))?;
        Ok(Self { client: client.clone(), connection, criteria, lease: None, server })
    }

    /// Returns the selected server.
    pub fn server(&self) -> &SelectedServer<Pool> {
        &self.server
    }

    /// Returns the pooled connection.
    pub fn connection(&mut self) -> &mut PooledConnection {
        &mut self.connection
    }

    /// Runs a command once, like [`Client::run`] without retries. A command without its own
    /// criteria uses the criteria of this connection. They determine only the read preference that
    /// is sent.
    ///
    /// # Errors
    ///
    /// As [`Client::run`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Whether the command took effect is then unknown, and later
    /// commands fail.
    pub async fn run(&mut self, command: &Command<'_>) -> Result<CommandReply, Error> {
        self.run_with(command, Writes::Checked).await
    }

    /// Runs a command once, like [`Client::run_raw`] without retries.
    ///
    /// # Errors
    ///
    /// As [`Client::run_raw`].
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_raw(&mut self, command: &Command<'_>) -> Result<CommandReply, Error> {
        self.run_with(command, Writes::Raw).await
    }

    async fn run_with(
        &mut self,
        command: &Command<'_>,
        writes: Writes,
    ) -> Result<CommandReply, Error> {
        let criteria = command.criteria(&self.criteria, &self.criteria);
        let settings = (self.client.limit(command), writes);
        let operation = Operation::new(&self.client, command, criteria, settings)?;
        let server = &self.server;
        let of_server = |error: Error| error.with_address(server.address());
        let budget = operation.budget(server).map_err(of_server)?;
        let mut lease = match operation.fields.takes_session() {
            true if self.lease.is_none() => {
                self.lease = Lease::acquire(&self.client, server, &self.connection);
                self.lease.as_mut()
            }
            true => self.lease.as_mut(),
            false => None,
        };
        let session = lease.as_mut().and_then(|lease| lease.send());
        let outcome = operation.send(server, &mut self.connection, budget, session).await;
        if let Some(lease) = lease {
            lease.answered(is_answered(&outcome));
        }
        let reply = outcome.map_err(of_server)?;
        operation.checked(server, &reply).map_or(Ok(reply), Err)
    }
}

/// Returns the error for an operation for which no server was selected.
fn unselected(error: SelectionError) -> Error {
    let (kind, message) = match &error {
        SelectionError::Timeout(_) => {
            (ErrorKind::SelectionTimeout, "no server was selected in time")
        }
        _ => (ErrorKind::Selection, "no server was selected"),
    };
    Error::new(kind, Stage::CheckOut, message).with_source(error)
}

/// Refuses a write concern that this client does not support.
fn check_write_concern(options: &Options) -> Result<(), ConfigError> {
    if options.w != Some(Acknowledgment::Nodes(0)) {
        return Ok(());
    }
    let reason = "this client waits for the reply to every write";
    let remedy = "leave the option out, or set it to at least 1";
    Err(ConfigError::new("w", "0", reason, remedy))
}

/// Returns the warnings about options that a client does not honour.
fn ignored_options(options: &Options) -> Vec<Warning> {
    let warning = |name, value, reason| Warning::new(name, value, reason, "the option is ignored");
    let compression = "this client does not compress messages";
    let mut warnings = Vec::new();
    if !options.compressors.is_empty() {
        warnings.push(warning("compressors", options.compressors.join(","), compression));
    }
    if let Some(level) = options.zlib_compression_level {
        warnings.push(warning("zlibCompressionLevel", level.to_string(), compression));
    }
    if options.timeout.is_some() {
        let limits = [
            ("socketTimeoutMS", options.socket_timeout),
            ("waitQueueTimeoutMS", options.pool.wait_queue_timeout),
            ("wTimeoutMS", options.w_timeout),
        ];
        warnings.extend(limits.into_iter().filter_map(|(name, limit)| {
            let millis = limit?.as_millis().to_string();
            Some(warning(name, millis, "`timeoutMS` replaces it"))
        }));
    }
    warnings
}
