//! Runs commands with the client under test.

use std::{error::Error, sync::Arc, time::Duration};

use bson::Document;
use sdam::{
    ErrorKind, Topology, TopologyBuilder,
    client::{Client, Command, PinnedConnection},
};
use sdam_core::{options::Options, read_preference::ReadPreference};
use sdam_events::channel::ChannelSink;
use sdam_pool::{Pin, Pool};
use sdam_select::criteria::Criteria;
use sdam_transport::runtime::Runtime;

use super::{helper::Kind, outcome::Failure};

/// The client under test.
pub(super) struct Driver {
    client: Client,
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
        let mut pinned = pinned.map_err(|error| Failure::from(&error))?;
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
        let command = request.command(&body).map_err(|error| client_error(&*error))?;
        // `runCommand` returns the reply as it is.
        let is_raw = request.kind == Kind::Generic;
        let reply = match connection {
            Some(connection) if is_raw => connection.run_raw(&command).await,
            Some(connection) => connection.run(&command).await,
            None if is_raw => self.client.run_raw(&command).await,
            None => self.client.run(&command).await,
        };
        let reply = reply.map_err(|error| Failure::from(&error))?;
        Document::from_reader(reply.body()).map_err(|error| client_error(&error))
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
    fn command<'c>(&'c self, body: &'c [u8]) -> Result<Command<'c>, Box<dyn Error>> {
        let database = &*self.database;
        let mut command = match &self.kind {
            Kind::Write => Command::write(database, body),
            Kind::Read | Kind::List => Command::read(database, body),
            Kind::Generic => Command::new(database, body),
        };
        if let Some(preference) = &self.preference {
            command = command.with_criteria(Criteria::read(preference.clone())?);
        }
        Ok(match self.timeout {
            Some(timeout) => command.with_timeout(timeout),
            None => command,
        })
    }
}

impl From<&sdam::Error> for Failure {
    fn from(error: &sdam::Error) -> Self {
        Self {
            message: format!("{error:#}"),
            is_server_error: error.reply().is_some(),
            code: error.code(),
            code_name: error.code_name().map(str::to_owned),
            labels: error.labels().map(str::to_owned).collect(),
            is_timeout: error.is_timeout(),
            write_concern: error
                .write_concern_error()
                .filter(|_| error.kind() == ErrorKind::Write)
                .map(|error| (error.code().unwrap_or_default(), error.message().to_owned())),
            ..Self::default()
        }
    }
}

fn client_error(error: &dyn Error) -> Failure {
    Failure { message: error.to_string(), ..Failure::default() }
}
