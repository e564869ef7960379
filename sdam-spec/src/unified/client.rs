//! A client entity: a topology.

use std::{iter, time::Duration};

use bson::{Bson, Document};
use futures::{
    StreamExt,
    future::{Either, select},
};

use sdam_core::{address::ServerAddress, event::Event, options::Options};
use sdam_events::{
    channel::{self, EventStream},
    log::LogConfig,
};
use sdam_select::Criteria;
use sdam_transport::{Io, Runtime, wire::Exchange};

use super::{
    entity::ClientEntity,
    event::ExpectedEvent,
    log::{self, Message},
};
use sdam::{Topology, TopologyBuilder};

/// The time limit of the format for waiting for an event.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Tests may shorten the pause between checks of clients that do not set it themselves; this is
/// the smallest allowed value.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);

/// A topology and its recorded events.
pub(super) struct Client {
    topology: Topology,
    io: Io,
    stream: EventStream,
    events: Vec<Event>,
    log: LogConfig,
}

/// The error of an operation.
pub(super) enum Failure {
    /// The client failed without a server's reply.
    Client(String),
    /// The server replied with an error.
    Server(String),
}

impl Client {
    /// Starts a client of the deployment at `uri` with the settings of the entity `client`.
    pub(super) fn start(
        uri: &str,
        runtime: &Runtime,
        client: &ClientEntity,
    ) -> Result<Self, String> {
        let log = client.observe_log_messages.config();
        let observed = client.observe_events.iter().map(|event| event.0);
        let interest = log.interest().union(observed.collect());
        let (sink, stream) = channel::unbounded();
        let topology = TopologyBuilder::new(options(uri, client)?)
            .sink(sink.interested_in(interest))
            .start(runtime.clone())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            topology,
            io: runtime.io.clone(),
            stream,
            events: Vec::new(),
            log,
        })
    }

    /// Waits until `count` events since the client's creation match `expected`.
    pub(super) async fn wait_for(
        &mut self,
        expected: &ExpectedEvent,
        count: usize,
    ) -> Result<(), String> {
        let deadline = self.io.clock.now() + TIMEOUT;
        loop {
            let matching = self.events.iter();
            let matching = matching
                .filter(|event| expected.matches(&event.kind))
                .count();
            if matching >= count {
                return Ok(());
            }
            match select(self.stream.next(), self.io.clock.sleep_until(deadline)).await {
                Either::Left((Some(event), _)) => self.events.push(event),
                Either::Left((None, _)) => return Err("the client has ended".to_owned()),
                Either::Right(_) => {
                    return Err(format!("only {matching} of {count} events arrived in time"));
                }
            }
        }
    }

    /// Selects a server by `criteria` and runs `command` on it.
    pub(super) async fn run(&self, criteria: &Criteria, command: &Document) -> Result<(), Failure> {
        let selected = self.topology.select(criteria).await;
        let selected = selected.map_err(|error| Failure::Client(error.to_string()))?;
        let reply = self.command(selected.address(), command).await;
        let reply = reply.map_err(Failure::Client)?;
        let ok = match reply.get("ok") {
            Some(Bson::Double(ok)) => *ok > 0.0,
            Some(Bson::Int32(ok)) => *ok > 0,
            _ => false,
        };
        if ok {
            Ok(())
        } else {
            Err(Failure::Server(reply.to_string()))
        }
    }

    async fn command(&self, server: &ServerAddress, body: &Document) -> Result<Document, String> {
        let deadline = Some(self.io.clock.now() + TIMEOUT);
        let mut exchange = Exchange::new();
        let body = body.to_vec().map_err(|error| error.to_string())?;
        let message = exchange.command(&body).map_err(|error| error.to_string())?;
        let attempt = async {
            let mut connection = self.io.transport.connect(server, deadline).await?;
            connection.send(message).await?;
            connection.recv().await
        };
        let message = attempt.await.map_err(|error| error.to_string())?;
        let reply = exchange
            .accept(&message)
            .map_err(|error| error.to_string())?;
        Document::from_reader(reply.body).map_err(|error| error.to_string())
    }

    /// Closes the client; may be called again.
    pub(super) async fn close(&self) {
        self.topology.close().await;
    }

    /// Returns the log messages of a closed client.
    ///
    /// If a test has not closed it, these include the messages about its end. Tests that do not
    /// expect those observe no topology, or ignore late messages.
    pub(super) fn messages(mut self) -> Vec<Message> {
        let rest = iter::from_fn(|| self.stream.try_next());
        self.events.extend(rest);
        log::messages(&self.log, &self.events)
    }
}

/// Builds the options of a client of the deployment at `uri`.
fn options(uri: &str, client: &ClientEntity) -> Result<Options, String> {
    let mut uri = uri.to_owned();
    let mut sets_frequency = false;
    for (name, value) in &client.uri_options {
        sets_frequency |= name.eq_ignore_ascii_case("heartbeatFrequencyMS");
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let separator = match (uri.contains('?'), uri.ends_with('/')) {
            (true, _) => "&",
            (false, true) => "?",
            (false, false) => "/?",
        };
        uri.extend([separator, name, "=", &value]);
    }
    let mut options = Options::parse(&uri).map_err(|error| error.to_string())?;
    if !sets_frequency {
        options.heartbeat_frequency = Some(HEARTBEAT_FREQUENCY);
    }
    // Members are discovered, but mongoses must be listed; a client gets several only on request.
    if options.replica_set.is_none() && !client.use_multiple_mongoses {
        options.seeds.truncate(1);
    }
    Ok(options)
}
