//! Prints notices: addresses, changes of the primary, refusals.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

use sdam::Snapshot;
use sdam_core::address::ServerAddress;
use serde_json::json;

use super::tenure::{Role, role};
use crate::target::SIMULATED;

/// The primary of a replica set, with its election.
type Primary = (ServerAddress, Role);

/// The outputs, and the last printed primary.
#[derive(Debug)]
pub(super) struct Notices<O, R> {
    output: O,
    remarks: R,
    json: bool,
    primary: Option<Primary>,
}

impl<O: Write, R: Write> Notices<O, R> {
    pub(super) fn new(output: O, remarks: R, json: bool) -> Self {
        Self { output, remarks, json, primary: None }
    }

    /// Prints the connection strings for clients, in the order of the ports, and whether the
    /// members are simulated.
    pub(super) fn listening(&mut self, uris: &[String], is_simulated: bool) -> io::Result<()> {
        if self.json {
            let (uri, reads) = (uris.first(), uris.get(1));
            let event = json!({
                "event": "listening", "uri": uri, "readUri": reads, "simulated": is_simulated,
            });
            writeln!(self.output, "{event}")?;
        } else {
            let label = is_simulated.then_some(SIMULATED);
            let words: Vec<_> = uris.iter().map(String::as_str).chain(label).collect();
            writeln!(self.output, "{}", words.join(" "))?;
        }
        self.output.flush()
    }

    pub(super) fn warning(&mut self, warning: &str) -> io::Result<()> {
        writeln!(self.remarks, "warning: {warning}")
    }

    /// Prints the primary if it has changed or was elected again.
    pub(super) fn primary(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let now = snapshot.description().primary();
        let now = now.map(|server| (server.address.clone(), role(server)));
        if now == self.primary || snapshot.is_closed() {
            return Ok(());
        }
        let was = self.primary.take().map(|(address, _)| address);
        self.primary = now;
        let now = self.primary.as_ref().map(|(address, _)| address);
        if self.json {
            let [now, was] = [now, was.as_ref()].map(|it| it.map(ServerAddress::as_str));
            let event = json!({ "event": "primary", "address": now, "was": was });
            writeln!(self.output, "{event}")?;
            return self.output.flush();
        }
        match (now, was) {
            (Some(now), Some(was)) if *now == was => {
                writeln!(self.remarks, "primary: {now}, elected again")
            }
            (Some(now), Some(was)) => writeln!(self.remarks, "primary: {now}, before {was}"),
            (Some(now), None) => writeln!(self.remarks, "primary: {now}"),
            (None, Some(was)) => writeln!(self.remarks, "no primary, before {was}"),
            (None, None) => Ok(()),
        }
    }

    pub(super) fn refused(&mut self, client: SocketAddr, reason: &str) -> io::Result<()> {
        if self.json {
            let client = client.to_string();
            let event = json!({ "event": "refused", "client": client, "reason": reason });
            writeln!(self.output, "{event}")?;
            return self.output.flush();
        }
        writeln!(self.remarks, "refused {client}: {reason}")
    }

    /// Prints that the program is waiting for `connections`.
    pub(super) fn stopping(&mut self, connections: usize) -> io::Result<()> {
        if self.json {
            let event = json!({ "event": "stopping", "connections": connections });
            writeln!(self.output, "{event}")?;
            return self.output.flush();
        }
        writeln!(self.remarks, "stopping: waiting for the replies of {connections} connections")
    }
}
