//! The execution of commands by the client under test.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bson::{Binary, Document, doc, spec::BinarySubtype};
use sdam::{
    Topology, TopologyBuilder,
    client::{Client, ClientBuilder, Command, CommandError, CommandErrorKind, PinnedConnection},
};
use sdam_core::options::Options;
use sdam_events::channel::ChannelSink;
use sdam_pool::{Pin, Pool};
use sdam_select::Criteria;
use sdam_transport::Runtime;

use super::{command::Access, outcome::Failure};

/// The number of the session of commands without one.
const IMPLICIT_SESSION: u8 = 1;

/// The client under test.
pub(super) struct Driver {
    client: Client,
    runtime: Runtime,
    /// Whether the implicit session was used.
    has_session: AtomicBool,
}

/// A command to run.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) database: String,
    /// The command without `$db`.
    pub(super) body: Document,
    pub(super) access: Access,
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
        let client = ClientBuilder::new(builder).start(runtime.clone());
        Ok(Self {
            client: client.map_err(|error| error.to_string())?,
            runtime: runtime.clone(),
            has_session: AtomicBool::new(false),
        })
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

    /// Runs the command, on `connection` if there is one, and returns its reply.
    pub(super) async fn run_on(
        &self,
        connection: Option<&mut PinnedConnection>,
        request: &Request,
    ) -> Result<Document, Failure> {
        let body = self
            .with_session(request)
            .to_vec()
            .map_err(|error| client_error(&error))?;
        let command = request
            .command(&body)
            .map_err(|error| client_error(&*error))?;
        let reply = match connection {
            Some(connection) => connection.run(&command).await,
            None => self.client.run(&command).await,
        };
        let reply = reply.map_err(|error| Failure::from(&error))?;
        Document::from_reader(reply.body()).map_err(|error| client_error(&error))
    }

    /// Adds the implicit session of drivers, unless the client adds one itself.
    fn with_session(&self, request: &Request) -> Document {
        let mut body = request.body.clone();
        if !matches!(request.access, Access::Write { is_retryable: true })
            && !body.contains_key("lsid")
        {
            body.insert("lsid", session_id(IMPLICIT_SESSION));
            self.has_session.store(true, Ordering::Relaxed);
        }
        body
    }

    /// Ends the implicit session and closes the client; may be called again.
    pub(super) async fn close(&self) {
        if self.has_session.swap(false, Ordering::Relaxed) {
            let body = doc! { "endSessions": [session_id(IMPLICIT_SESSION)] };
            if let Ok(body) = body.to_vec() {
                let command = Command::new("admin", &body);
                let command = command.with_timeout(Client::END_SESSIONS_PATIENCE);
                // Drivers ignore errors of `endSessions`.
                let _ = self.client.run(&command).await;
            }
        }
        self.client.close().await;
    }
}

impl Request {
    /// Returns the command with `body`, which is that of the request.
    fn command<'c>(&'c self, body: &'c [u8]) -> Result<Command<'c>, Box<dyn Error>> {
        let database = &*self.database;
        let (command, preference) = match &self.access {
            Access::Write { is_retryable: true } => (Command::write(database, body), None),
            Access::Write { .. } => (Command::write(database, body).without_retry(), None),
            Access::Read(preference) => (Command::read(database, body), preference.clone()),
            Access::Generic(preference) => (Command::new(database, body), preference.clone()),
        };
        Ok(match preference {
            Some(preference) => command.with_criteria(Criteria::read(preference)?),
            None => command,
        })
    }
}

impl From<&CommandError> for Failure {
    fn from(error: &CommandError) -> Self {
        let code_name = error
            .server_error()
            .and_then(|error| error.code_name.as_deref());
        Self {
            message: error.to_string(),
            is_server_error: matches!(error.kind(), CommandErrorKind::Reply(_)),
            code: error.code(),
            code_name: code_name.map(str::to_owned),
            labels: error.labels().map(str::to_owned).collect(),
        }
    }
}

/// Returns the id of a session.
pub(super) fn session_id(number: u8) -> Document {
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![number; 16],
    };
    doc! { "id": id }
}

fn client_error(error: &dyn Error) -> Failure {
    Failure {
        message: error.to_string(),
        ..Failure::default()
    }
}
