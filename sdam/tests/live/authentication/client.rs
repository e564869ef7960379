//! A topology whose pools open authenticated connections.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::Document;
use futures::executor::block_on;
use sdam::{
    Authenticator, Criteria, Error, Established, Options, ServerAddress, Topology, async_trait,
    error::Stage,
    pool::{AuthStep, Conversation},
};
use sdam_core::hello::HelloAuth;
use sdam_live::{Mongod, or_skip};
use sdam_testkit::{RecordingPool, RecordingPools};

use crate::runtime::{Host, version};

/// The time limit of every wait, long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a server that requires authentication. Returns `None` if no server is available.
pub(super) fn secured() -> Option<Mongod> {
    or_skip(Mongod::start_secured(version())).unwrap()
}

/// Returns the server's maximum wire version: at least 9 since 4.4, and at least 13 since 5.0.
pub(super) fn wire_version(mongod: &Mongod) -> i32 {
    mongod.hello().unwrap().get_i32("maxWireVersion").unwrap()
}

/// A topology of one server, with a connection string that names the user.
pub(super) struct Client {
    // Declared before the runtime, because fields are dropped in order of their declaration, and
    // the topology must be dropped first.
    topology: Topology<RecordingPool>,
    authenticator: Option<Observed>,
    _host: Host,
}

impl Client {
    /// Connects directly to `mongod`; `user_info` is empty or ends with `@`.
    pub(super) fn start(mongod: &Mongod, user_info: &str, options: &str, speculates: bool) -> Self {
        let host = mongod.host();
        let base = "directConnection=true&heartbeatFrequencyMS=500&appName=auth";
        let uri = format!("mongodb://{user_info}{host}/?{base}{options}");
        let authenticator = sdam_auth::authenticator(&Options::parse(&uri).unwrap()).unwrap();
        let runtime = Host::start();
        let mut builder = Topology::builder(&uri).unwrap().pools(RecordingPools::default());
        let authenticator =
            authenticator.map(|inner| Observed { inner, speculates, seen: Arc::default() });
        if let Some(own) = &authenticator {
            builder = builder.authenticator(Arc::new(own.clone()));
        }
        let topology = builder.start(runtime.runtime.clone()).unwrap();
        Self { topology, authenticator, _host: runtime }
    }

    /// Opens a connection to the server once the server is available.
    pub(super) fn open(&self) -> Result<Established, Error> {
        self.open_after(|| ())
    }

    /// Like [`open`](Self::open), but calls `fail` before opening the connection, and keeps its
    /// result until the attempt has ended.
    pub(super) fn open_after<G>(&self, fail: impl FnOnce() -> G) -> Result<Established, Error> {
        block_on(async {
            let server = self.topology.select(&Criteria::write()).await.unwrap();
            let _guard = fail();
            server.pool().context().establish(Some(PATIENCE)).await
        })
    }

    /// Checks that the last error that made the server Unknown came from authentication.
    pub(super) fn assert_lost(&self) {
        let snapshot = self.topology.snapshot();
        let server = snapshot.servers().next().unwrap();
        assert_eq!(server.failures().last.unwrap().error.stage(), Stage::Auth);
    }

    /// Closes the topology and returns the record of sent messages.
    pub(super) fn finish(self) -> Seen {
        block_on(self.topology.close());
        let seen = self.authenticator.map(|own| own.seen);
        seen.map_or_else(Seen::default, |seen| seen.lock().unwrap().clone())
    }
}

/// Runs a command and returns the reply, even if it contains an error.
pub(super) fn run(connection: &mut Established, command: &Document) -> Document {
    let command = command.to_vec().unwrap();
    let reply = block_on(connection.run_command(&command, Some(PATIENCE)));
    let body = match &reply {
        Ok(reply) => reply.body(),
        Err(error) => error.reply().unwrap(),
    };
    Document::from_reader(body).unwrap()
}

/// A summary of the messages that an authenticator has sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The mechanism in the last command that specifies one.
    pub(super) mechanism: String,
    /// The number of commands, excluding those within hello.
    pub(super) commands: usize,
}

/// An authenticator that records its messages, and can omit the speculative command.
#[derive(Clone, Debug)]
struct Observed {
    inner: Arc<dyn Authenticator>,
    speculates: bool,
    seen: Arc<Mutex<Seen>>,
}

struct ObservedConversation {
    inner: Box<dyn Conversation>,
    speculates: bool,
    seen: Arc<Mutex<Seen>>,
}

impl ObservedConversation {
    /// Records the mechanism named in a command.
    fn note(&self, command: &[u8]) {
        let command = Document::from_reader(command).unwrap();
        if let Ok(name) = command.get_str("mechanism") {
            name.clone_into(&mut self.seen.lock().unwrap().mechanism);
        }
    }

    fn noted(&self, step: Result<AuthStep, Error>) -> Result<AuthStep, Error> {
        if let Ok(AuthStep::Send(command)) = &step {
            self.note(command);
            self.seen.lock().unwrap().commands += 1;
        }
        step
    }
}

#[async_trait]
impl Authenticator for Observed {
    async fn begin(&self, server: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        Ok(Box::new(ObservedConversation {
            inner: self.inner.begin(server).await?,
            speculates: self.speculates,
            seen: Arc::clone(&self.seen),
        }))
    }
}

#[async_trait]
impl Conversation for ObservedConversation {
    fn hello_auth(&self) -> HelloAuth {
        let mut auth = self.inner.hello_auth();
        if !self.speculates {
            auth.speculative_authenticate = None;
        }
        if let Some(command) = &auth.speculative_authenticate {
            self.note(command);
        }
        auth
    }

    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        let step = self.inner.start(hello).await;
        self.noted(step)
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        let step = self.inner.next(reply).await;
        self.noted(step)
    }
}
