//! Drives [`Deployment`] with plain sockets and `poll(2)`, as a binding for another language would:
//! one thread, no runtime, no engine.

use std::{io, sync::Arc, time};

use mio::{Events, Poll, Token};
use sdam_core::deployment::{ConnId, Deployment, Input, Output};
use sdam_core::{hello::Handshake, monitor::MonitorConfig, options::Options};
use sdam_core::{rng::Rng, server::ServerDescription, time::Instant};
use sdam_select::{choose, criteria::Criteria, error_text, settings::Settings};

use crate::link::Link;

/// A client's view of a deployment. It makes progress while [`select`](Self::select) runs.
#[derive(Debug)]
pub(crate) struct Client {
    deployment: Deployment,
    settings: Settings,
    rng: Rng,
    epoch: time::Instant,
    poll: Poll,
    links: Vec<Link>,
    last: Token,
}

impl Client {
    /// Creates a client and begins to connect. Fails if the system lacks the resources for
    /// `poll(2)`.
    pub(crate) fn new(options: &Options, seed: u64) -> io::Result<Self> {
        let mut rng = Rng::new(seed);
        let config = MonitorConfig::new(options, Handshake::new([]).into(), false);
        let mut client = Self {
            deployment: Deployment::new(options.clone(), config.into(), rng.fork()),
            settings: Settings::new(options),
            rng,
            epoch: time::Instant::now(),
            poll: Poll::new()?,
            links: Vec::new(),
            last: Token(0),
        };
        client.handle(Input::Open);
        Ok(client)
    }

    /// Waits up to `limit` for a server that meets `criteria`, and returns it.
    pub(crate) fn select(
        &mut self,
        criteria: &Criteria,
        limit: time::Duration,
    ) -> io::Result<Arc<ServerDescription>> {
        let end = self.now() + limit;
        // First handle everything that has arrived since the last call.
        self.turn(self.now())?;
        loop {
            let (topology, random) = (self.deployment.description(), self.rng.next_u64());
            let chosen = choose(topology, &self.settings, criteria, |_| 0, random);
            if let Some(candidate) = chosen.map_err(io::Error::other)? {
                return Ok(Arc::clone(candidate.server));
            }
            if self.now() >= end {
                let text = error_text(topology, criteria);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.turn(end)?;
        }
    }

    /// Waits for answers and timers until `end` at the latest. Handles the answers that have
    /// arrived, and then the timers that are due.
    fn turn(&mut self, end: Instant) -> io::Result<()> {
        let until = self.deployment.deadline(true).map_or(end, |it| it.min(end));
        let mut events = Events::with_capacity(64);
        match self.poll.poll(&mut events, Some(until.since(self.now()))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => events.iter().for_each(|event| self.advance(|link| link.token == event.token())),
        }
        while let Some(timer) = self.deployment.due(self.now(), true) {
            self.handle(Input::Due { timer, wanted: true });
        }
        Ok(())
    }

    /// Passes a connection's answer to the deployment, if it has arrived.
    fn advance(&mut self, is_it: impl Fn(&Link) -> bool) {
        let now = self.now();
        let link = self.links.iter_mut().find(|link| is_it(link));
        if let Some(input) = link.and_then(|link| link.advance(now)) {
            self.handle(input);
        }
    }

    /// Passes `input` to the deployment and carries out the resulting outputs that concern
    /// connections. The other outputs concern pools and sinks, which this client does not have.
    fn handle(&mut self, input: Input) {
        let now = self.now();
        let mut changed = Vec::<ConnId>::new();
        for output in self.deployment.handle(now, input) {
            match output {
                Output::Connect { conn, .. } => {
                    let server = self.deployment.description().server_by_id(conn.server);
                    let address = server.map(|server| &server.address);
                    self.last.0 += 1;
                    self.links.push(Link::open(conn, self.last, address, self.poll.registry()));
                    changed.push(conn);
                }
                Output::Disconnect { conn } => self.links.retain(|link| link.conn != conn),
                Output::Send { conn, .. } | Output::Read { conn, .. } => {
                    if let Some(link) = self.links.iter_mut().find(|link| link.conn == conn) {
                        link.ask(&output, now);
                    }
                    changed.push(conn);
                }
                _ => {}
            }
        }
        // A connection's next reply may already have arrived together with the previous one.
        for conn in changed {
            self.advance(|link| link.conn == conn);
        }
    }

    fn now(&self) -> Instant {
        let nanos = self.epoch.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
