//! Tests the client with a simulated deployment, in virtual time.

mod commands;
mod retries;
mod timeouts;

use std::{cell::RefCell, future::Future};

use sdam::{
    ErrorKind,
    client::{Client, Command},
};

use super::*;

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
        let sim = Sim::new(seed, blueprint);
        let (sink, events) = unbounded();
        let uri = sim.uri();
        let separator = if uri.contains('?') { '&' } else { '?' };
        let builder = Topology::builder(&format!("{uri}{separator}{options}")).unwrap();
        let failures = Interest::of(&[EventName::ConnectionCheckOutFailed]);
        let interest = Interest::COMMANDS.union(Interest::SELECTION).union(failures);
        let builder = builder.sink(sink.interested_in(interest));
        let client = builder.client(sim.runtime()).unwrap();
        Self { sim, client, events: RefCell::new(events) }
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

    fn events(&self) -> Vec<Event> {
        // A separate task delivers events, so let that task run first.
        self.sim.run_for(Duration::from_millis(1));
        drain(&mut self.events.borrow_mut())
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

fn encoded(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}
