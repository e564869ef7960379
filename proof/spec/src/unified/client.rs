//! Client entities, and the client under test that runs their commands.

use std::{sync::Arc, time::Duration};

use bson::Document;
use sdam::{
    Error, ErrorKind, Topology, TopologyBuilder,
    client::{self, Command, PinnedConnection},
};
use sdam_core::{
    error::Stage,
    event::{Event, EventKind, EventName},
    options::Options,
    read_preference::ReadPreference,
};
use sdam_events::{
    channel::{self, ChannelSink},
    log::LogConfig,
    sink::Interest,
};
use sdam_pool::{Pin, Pool};
use sdam_select::criteria::Criteria;
use sdam_transport::{handshake::DriverInfo, runtime::Runtime};
use serde_json::Value;

use super::{
    event::ExpectedEvent,
    format::{ApiEntity, ClientEntity},
    helper::Kind,
    log::{self, Message},
    operation::{DriverInfoOptions, Failure},
};
use crate::{fields::option_text, running::Recorder};

/// The time limit for waiting for an event, as set by the test format.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum heartbeat interval, which tests may use for clients that set no interval.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);
/// Commands whose events are not recorded (unified test format: "configureFailPoint").
const UNRECORDED: [&str; 1] = ["configureFailPoint"];

/// A client, and the events that were recorded from it.
pub(super) struct Client {
    driver: Arc<Driver>,
    recorder: Recorder,
    sink: Arc<ChannelSink>,
    /// The names of the events that the test observes. All other events are recorded only to
    /// produce log messages.
    observed: Interest,
    unrecorded: Vec<String>,
    log: LogConfig,
}

/// The events and log messages that a client published.
pub(super) struct Published {
    pub(super) events: Vec<Event>,
    pub(super) messages: Vec<Message>,
}

impl Client {
    /// Starts a client of the deployment at `uri`, configured as `client` specifies.
    pub(super) fn start(
        uri: &str,
        runtime: &Runtime,
        client: &ClientEntity,
    ) -> Result<Self, String> {
        let log = client.observe_log_messages.config();
        let observed = client.observe_events.iter().map(|event| event.0);
        let observed: Interest = observed.collect();
        let (sink, stream) = channel::unbounded();
        let mut interest = log.interest().union(observed);
        if client.await_min_pool_size_ms.is_some() {
            interest = interest.union([EventName::ConnectionReady].into_iter().collect());
        }
        let sink = Arc::new(sink.interested_in(interest));
        let unrecorded = client.ignore_command_monitoring_events.iter().cloned();
        Ok(Self {
            driver: Arc::new(Driver::start(options(uri, client)?, runtime, Some(sink.clone()))?),
            recorder: Recorder::new(stream),
            sink,
            observed,
            unrecorded: unrecorded.chain(UNRECORDED.map(str::to_owned)).collect(),
            log,
        })
    }

    /// Waits until the pool of each server has the minimum number of connections.
    pub(super) async fn fill_pools(&mut self, client: &ClientEntity) -> Result<(), String> {
        let Some(millis) = client.await_min_pool_size_ms else {
            return Ok(());
        };
        let size = client.uri_options.get("minPoolSize");
        let size = size.and_then(Value::as_u64).unwrap_or_default() as usize;
        let servers = self.driver.topology().snapshot().description().servers().len();
        let clock = Arc::clone(&self.driver.runtime().backend.clock);
        let is_ready = |event: &EventKind| matches!(event, EventKind::ConnectionReady { .. });
        let limit = (servers * size, Duration::from_millis(millis));
        self.recorder.wait_for(&*clock, limit, is_ready).await
    }

    /// Returns the driver that runs the client's operations.
    pub(super) fn driver(&self) -> Arc<Driver> {
        Arc::clone(&self.driver)
    }

    /// Waits until `count` events since the client's creation match `expected`.
    pub(super) async fn wait_for(
        &mut self,
        expected: &ExpectedEvent,
        count: usize,
    ) -> Result<(), String> {
        let clock = Arc::clone(&self.driver.runtime().backend.clock);
        let matches = observing(self.observed, expected);
        self.recorder.wait_for(&*clock, (count, TIMEOUT), matches).await
    }

    /// Fails unless exactly `count` events since the client's creation match `expected`.
    pub(super) async fn assert_count(
        &mut self,
        expected: &ExpectedEvent,
        count: usize,
    ) -> Result<(), String> {
        self.flush().await;
        match self.recorder.count(observing(self.observed, expected)) {
            actual if actual == count => Ok(()),
            actual => Err(format!("there are {actual} events, expected {count}")),
        }
    }

    /// Fails unless the last two commands have the same session or, if `same` is false, different
    /// sessions.
    pub(super) async fn assert_sessions(&mut self, same: bool) -> Result<(), String> {
        self.flush().await;
        let sent = self.recorder.events().iter().rev().filter_map(|event| match &event.kind {
            EventKind::CommandStarted { command, document, .. } => {
                let is_recorded = !self.unrecorded.iter().any(|own| *own == *command.name);
                let document = is_recorded.then(|| Document::from_reader(&document[..]));
                document?.ok()?.get_document("lsid").cloned().ok()
            }
            _ => None,
        });
        let last: Vec<_> = sent.take(2).collect();
        match &*last {
            [last, before] if (last == before) == same => Ok(()),
            _ => Err(format!("the sessions of the last two commands are {last:?}")),
        }
    }

    /// Fails unless exactly `count` connections are checked out.
    pub(super) fn assert_checked_out(&self, count: usize) -> Result<(), String> {
        let (topology, snapshot) = (self.driver.topology(), self.driver.topology().snapshot());
        let pools = snapshot.servers().filter_map(|server| topology.pool(&server));
        match pools.map(|pool| pool.stats().in_use).sum::<usize>() {
            actual if actual == count => Ok(()),
            actual => Err(format!("{actual} connections are checked out, expected {count}")),
        }
    }

    /// Adds a library to the metadata that new connections send.
    pub(super) fn append_metadata(&self, info: &DriverInfoOptions) -> Result<(), String> {
        let mut library = DriverInfo::new(&info.name);
        if let Some(version) = &info.version {
            library = library.with_version(version);
        }
        if let Some(platform) = &info.platform {
            library = library.with_platform(platform);
        }
        let appended = self.driver.topology().append_metadata(library);
        appended.map(drop).map_err(|error| error.to_string())
    }

    /// Closes the client. May be called repeatedly.
    pub(super) async fn close(&self) {
        self.driver.close().await;
    }

    /// Closes the client, and returns everything that it published before it was closed.
    pub(super) async fn end(mut self) -> Published {
        self.flush().await;
        self.close().await;
        let messages = log::messages(&self.log, self.recorder.events());
        let is_expected = |event: &&Event| {
            let name = match &event.kind {
                EventKind::CommandStarted { command, .. }
                | EventKind::CommandSucceeded { command, .. }
                | EventKind::CommandFailed { command, .. } => &*command.name,
                _ => "",
            };
            self.observed.contains(event.kind.name())
                && !self.unrecorded.iter().any(|own| own == name)
        };
        let events = self.recorder.events().iter().filter(is_expected);
        Published { events: events.cloned().collect(), messages }
    }

    async fn flush(&mut self) {
        let topology = self.driver.topology();
        let (events, sink) = (topology.events(), &*self.sink);
        let pending = || {
            events.deliver_now(sink);
            events.depth()
        };
        self.recorder.flush(pending).await;
    }
}

/// Returns whether an event is observed, and as expected.
fn observing(observed: Interest, expected: &ExpectedEvent) -> impl Fn(&EventKind) -> bool {
    move |event| observed.contains(event.name()) && expected.matches(event)
}

/// Builds the options for a client of the deployment at `uri`.
fn options(uri: &str, client: &ClientEntity) -> Result<Options, String> {
    // The members of a set are discovered, but mongoses must be listed. A client uses several
    // mongoses only if its entity requires this.
    let mut uri = if client.use_multiple_mongoses || uri.contains("replicaSet=") {
        uri.to_owned()
    } else {
        with_one_host(uri)
    };
    let mut sets_frequency = false;
    for (name, value) in &client.uri_options {
        sets_frequency |= name.eq_ignore_ascii_case("heartbeatFrequencyMS");
        let separator = match (uri.contains('?'), uri.ends_with('/')) {
            (true, _) => "&",
            (false, true) => "?",
            (false, false) => "/?",
        };
        uri.extend([separator, name, "=", &option_text(value)]);
    }
    let mut options = Options::parse(&uri).map_err(|error| error.to_string())?;
    options.server_api = client.server_api.as_ref().map(ApiEntity::server_api);
    if !sets_frequency {
        options.heartbeat_frequency = Some(HEARTBEAT_FREQUENCY);
    }
    Ok(options)
}

/// Returns the connection string with only its first host.
fn with_one_host(uri: &str) -> String {
    match uri.split_once(',') {
        None => uri.to_owned(),
        Some((first, rest)) => {
            let path = rest.find('/').map_or("", |slash| &rest[slash..]);
            format!("{first}{path}")
        }
    }
}

/// The client under test.
pub(super) struct Driver {
    client: client::Client,
    runtime: Runtime,
}

/// A command to run.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) database: String,
    /// The command without `$db`.
    pub(super) body: Document,
    pub(super) kind: Kind,
    pub(super) preference: Option<ReadPreference>,
    /// The time limit, which overrides the client's.
    pub(super) timeout: Option<Duration>,
}

impl Driver {
    /// Starts a client whose events go to `sink`.
    pub(super) fn start(
        options: Options,
        runtime: &Runtime,
        sink: Option<Arc<ChannelSink>>,
    ) -> Result<Self, String> {
        let mut builder = TopologyBuilder::new(options);
        if let Some(sink) = sink {
            builder = builder.sink(sink);
        }
        let client = builder.client(runtime.clone());
        Ok(Self { client: client.map_err(|error| error.to_string())?, runtime: runtime.clone() })
    }

    pub(super) fn topology(&self) -> &Topology<Pool> {
        self.client.topology()
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Runs the command and returns its reply.
    pub(super) async fn run(&self, request: &Request) -> Result<Document, Failure> {
        self.run_on(None, request).await
    }

    /// Checks out a connection for several commands.
    pub(super) async fn pin(&self, pin: Pin) -> Result<PinnedConnection, Failure> {
        let pinned = self.client.pin(None).await;
        let mut pinned = pinned?;
        pinned.connection().pin(pin);
        Ok(pinned)
    }

    /// Runs the command on `connection`, if given, and returns its reply.
    pub(super) async fn run_on(
        &self,
        connection: Option<&mut PinnedConnection>,
        request: &Request,
    ) -> Result<Document, Failure> {
        let body = request.body.to_vec().map_err(|error| client_error(&error))?;
        let command = request.command(&body)?;
        // `runCommand` returns the unchanged reply, even if the reply contains write errors.
        let is_raw = request.kind == Kind::Generic;
        let reply = match connection {
            Some(connection) if is_raw => connection.run_raw(&command).await,
            Some(connection) => connection.run(&command).await,
            None if is_raw => self.client.run_raw(&command).await,
            None => self.client.run(&command).await,
        };
        let reply = Document::from_reader(reply?.body());
        Ok(reply.map_err(|error| client_error(&error))?)
    }

    /// Closes the client. May be called repeatedly.
    pub(super) async fn close(&self) {
        self.client.close().await;
    }
}

impl Request {
    /// Creates a command without a kind, a read preference or a time limit.
    pub(super) fn generic(database: &str, body: Document) -> Self {
        Self {
            database: database.to_owned(),
            body,
            kind: Kind::Generic,
            preference: None,
            timeout: None,
        }
    }

    /// Returns the command to run. `body` is the encoded body of the request.
    fn command<'c>(&'c self, body: &'c [u8]) -> Result<Command<'c>, Error> {
        let database = &*self.database;
        let mut command = match &self.kind {
            Kind::Write => Command::write(database, body),
            Kind::Read | Kind::List => Command::read(database, body),
            Kind::Generic => Command::new(database, body),
        };
        if let Some(preference) = &self.preference {
            let criteria =
                Criteria::read(preference.clone()).map_err(|error| client_error(&error))?;
            command = command.with_criteria(criteria);
        }
        Ok(match self.timeout {
            Some(timeout) => command.with_timeout(timeout),
            None => command,
        })
    }
}

fn client_error(error: &dyn ToString) -> Error {
    Error::new(ErrorKind::Invalid, Stage::Operation, error.to_string())
}
