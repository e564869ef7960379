//! Tests the client with a simulated deployment, in virtual time.

mod commands;
mod overload;
mod retries;
mod sessions;
mod timeouts;

use std::{cell::RefCell, future::Future, sync::Arc, time::Duration};

use bson::{Document, RawDocumentBuf, doc};
use sdam::{
    Connection, Error, Event, EventKind, Interest, ServerAddress, Topology, Transport, async_trait,
    client::{Client, Command},
    events::{CheckOutFailure, EventName},
    runtime::Instant,
};
use sdam_events::channel::{EventStream, unbounded};
use sdam_sim::{Blueprint, runtime::Sim};
use sdam_transport::{
    wire::{OpMsg, WireMessage},
    wrap::{Wrap, Wrapped},
};

use crate::replica_set;

/// A simulated deployment with a client and its events.
struct World {
    sim: Sim,
    client: Client,
    events: RefCell<EventStream>,
}

impl World {
    /// Simulates `blueprint` and starts a client, with these options added to the connection
    /// string.
    fn start(blueprint: &Blueprint, options: &str) -> Self {
        Self::with_seed(1, blueprint, options)
    }

    fn with_seed(seed: u64, blueprint: &Blueprint, options: &str) -> Self {
        Self::with_hello(seed, blueprint, options, |_| ())
    }

    /// Simulates servers whose replies to hello `edit` changes.
    fn with_hello(seed: u64, blueprint: &Blueprint, options: &str, edit: Edit) -> Self {
        let sim = Sim::new(seed, blueprint);
        let (sink, events) = unbounded();
        let uri = sim.uri();
        let separator = if uri.contains('?') { '&' } else { '?' };
        let builder = Topology::builder(&format!("{uri}{separator}{options}")).unwrap();
        let failures = Interest::of(&[EventName::ConnectionCheckOutFailed]);
        let sink =
            sink.interested_in(Interest::COMMANDS.union(Interest::SELECTION).union(failures));
        let mut runtime = sim.runtime();
        let transport = Wrapped::new(runtime.backend.transport, Hellos(edit));
        runtime.backend.transport = Arc::new(transport);
        let client = builder.sink(sink).client(runtime).unwrap();
        let events = RefCell::new(events);
        Self { sim, client, events }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.sim.block_on(future)
    }

    /// Runs a command and returns the decoded reply.
    fn try_command(&self, command: &Command<'_>) -> Result<Document, Error> {
        let reply = self.run(self.client.run(command))?;
        Ok(Document::from_reader(reply.body()).unwrap())
    }

    /// Inserts a document with a retryable write.
    fn insert(&self, id: i32) -> Result<Document, Error> {
        let insert = encoded(&doc! { "insert": "c", "documents": [{ "_id": id }] });
        self.try_command(&Command::write("test", insert.as_bytes()))
    }

    /// Makes the primary, or the only server, fail commands.
    fn fail(&self, mode: Document, data: Document) {
        let fail = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
        let fail = encoded(&fail);
        self.try_command(&Command::new("admin", fail.as_bytes())).unwrap();
    }

    /// Returns the reasons and messages of the check-outs that have failed since the last call to
    /// this method or to [`log`](Self::log).
    fn check_out_failures(&self) -> Vec<(CheckOutFailure, String)> {
        let events = self.events().into_iter();
        let failures = events.filter_map(|event| match event.kind {
            EventKind::ConnectionCheckOutFailed { reason, failure, .. } => {
                Some((reason, failure.to_string()))
            }
            _ => None,
        });
        failures.collect()
    }

    fn events(&self) -> Vec<Event> {
        // A separate task delivers events, so let that task run first.
        self.sim.run_for(Duration::from_millis(1));
        let mut events = self.events.borrow_mut();
        std::iter::from_fn(|| events.try_next()).collect()
    }

    /// Returns the documents of commands with this name that have started since the last call, and
    /// the names of all their events.
    fn log(&self, command: &str) -> (Vec<Document>, Vec<&'static str>) {
        let all = self.events();
        let of = |event: &&Event| match &event.kind {
            EventKind::CommandStarted { command: info, .. }
            | EventKind::CommandSucceeded { command: info, .. }
            | EventKind::CommandFailed { command: info, .. } => &*info.name == command,
            _ => false,
        };
        let names = all.iter().filter(of);
        let names = names.map(|event| event.kind.name().as_str()).collect();
        let started = all.iter().filter(of).filter_map(|event| match &event.kind {
            EventKind::CommandStarted { document, .. } => {
                Some(Document::from_reader(&document[..]).unwrap())
            }
            _ => None,
        });
        (started.collect(), names)
    }
}

/// Changes a reply to hello.
type Edit = fn(&mut Document);

/// A hook around connections that changes the replies to hello.
#[derive(Debug)]
struct Hellos(Edit);

#[async_trait]
impl Wrap for Hellos {
    async fn connect(
        &self,
        inner: &dyn Transport,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        Ok(Box::new(Edited(inner.connect(target, deadline).await?, self.0)))
    }
}

#[derive(Debug)]
struct Edited(Box<dyn Connection>, Edit);

#[async_trait]
impl Connection for Edited {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        self.0.send(message).await
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        let message = self.0.recv().await?;
        let mut body = Document::from_reader(message.body()).unwrap();
        if !body.contains_key("maxWireVersion") {
            return Ok(message);
        }
        (self.1)(&mut body);
        let (request_id, response_to) = (message.request_id(), message.response_to());
        let (body, more_to_come) = (body.to_vec().unwrap(), message.more_to_come());
        let edited =
            OpMsg { request_id, response_to, more_to_come, body: &body, ..OpMsg::default() };
        Ok(edited.encode().unwrap())
    }
}

/// The kind of a command, which determines how the client runs it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Generic,
    Read,
    Write,
    SingleWrite,
}

impl Kind {
    fn command(self, document: &RawDocumentBuf) -> Command<'_> {
        let document = document.as_bytes();
        match self {
            Self::Generic => Command::new("test", document),
            Self::Read => Command::read("test", document),
            Self::Write => Command::write("test", document),
            Self::SingleWrite => Command::write("test", document).without_retry(),
        }
    }
}

fn encoded(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}
