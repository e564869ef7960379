//! Prints notices, such as addresses, changes of the primary, and refusals.

use std::{
    io::{self, Write},
    net::SocketAddr,
    time::SystemTime,
};

use sdam::Snapshot;
use sdam_core::address::ServerAddress;
use serde_json::{Value, json};

use super::tenure::{Role, role};
use crate::log::timestamp;
use crate::target::SIMULATED;
use crate::terminal::{json_line, sanitize};

/// The primary of a replica set, and the election that it won.
type Primary = (ServerAddress, Role);

/// Writes notices to the outputs of the program, and remembers the last printed primary.
///
/// A notice that cannot be written is dropped, so that serving clients does not depend on anyone
/// reading the notices. The next notice that can be written is preceded by the number of dropped
/// ones.
#[derive(Debug)]
pub(super) struct Notices<O, R> {
    output: O,
    remarks: R,
    json: bool,
    primary: Option<Primary>,
    dropped: u64,
}

impl<O: Write, R: Write> Notices<O, R> {
    pub(super) fn new(output: O, remarks: R, json: bool) -> Self {
        Self { output, remarks, json, primary: None, dropped: 0 }
    }

    /// Prints the connection strings for clients, in the order of the ports, and whether the
    /// members are simulated.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub(super) fn listening(&mut self, uris: &[String], is_simulated: bool) -> io::Result<()> {
        if self.json {
            let (uri, reads) = (uris.first(), uris.get(1));
            let event = json!({
                "event": "listening", "uri": uri, "readUri": reads, "simulated": is_simulated,
            });
            return self.write_event(event);
        }
        let label = is_simulated.then_some(SIMULATED);
        let words: Vec<_> = uris.iter().map(String::as_str).chain(label).collect();
        writeln!(self.output, "{}", words.join(" "))?;
        self.output.flush()
    }

    /// Prints the error that ends the program.
    pub(super) fn fatal(&mut self, error: &io::Error) {
        // If writing to standard error fails as well, there is no other place to report the error.
        let _ = writeln!(self.remarks, "error: the addresses cannot be printed: {error}");
    }

    pub(super) fn warning(&mut self, warning: &str) {
        let written = writeln!(self.remarks, "warning: {warning}");
        self.dropped += u64::from(written.and_then(|()| self.remarks.flush()).is_err());
    }

    /// Prints the primary if another member is primary now, or if the same member was elected
    /// again.
    pub(super) fn primary(&mut self, snapshot: &Snapshot) {
        let now = snapshot.description().primary();
        let now = now.map(|server| (server.address.clone(), role(server)));
        if now == self.primary || snapshot.is_closed() {
            return;
        }
        let was = self.primary.take().map(|(address, _)| address);
        self.primary.clone_from(&now);
        let now = now.map(|(address, _)| address);
        let text = match (&now, &was) {
            (Some(now), Some(was)) if now == was => format!("primary: {now}, elected again"),
            (Some(now), Some(was)) => format!("primary: {now}, before {was}"),
            (Some(now), None) => format!("primary: {now}"),
            (None, Some(was)) => format!("no primary, before {was}"),
            (None, None) => return,
        };
        let [now, was] = [&now, &was].map(|it| it.as_ref().map(ServerAddress::as_str));
        self.print(&text, &json!({ "event": "primary", "address": now, "was": was }));
    }

    pub(super) fn refused(&mut self, client: SocketAddr, reason: &str) {
        let event = json!({ "event": "refused", "client": client.to_string(), "reason": reason });
        self.print(&format!("refused {client}: {reason}"), &event);
    }

    /// Prints a warning that a client has probably connected directly to the members.
    pub(super) fn only_discovered(&mut self, client: SocketAddr) {
        let reason = "a driver does that if it connects to the members itself; add \
                      directConnection=true to its connection string, or start the proxy with \
                      --advertise";
        let event = json!({ "event": "onlyHello", "client": client.to_string(), "reason": reason });
        self.print(&format!("{client} left after hello: {reason}"), &event);
    }

    /// Prints the address of the pages about the proxy.
    pub(super) fn status(&mut self, address: SocketAddr) {
        let url = format!("http://{address}");
        self.print(&format!("status: {url}"), &json!({ "event": "status", "url": url }));
    }

    /// Prints that the program is stopping, and that it is waiting for replies on the given number
    /// of connections.
    pub(super) fn stopping(&mut self, connections: usize) {
        let text = format!("stopping: waiting for the replies of {connections} connections");
        self.print(&text, &json!({ "event": "stopping", "connections": connections }));
    }

    fn print(&mut self, text: &str, event: &Value) {
        if self.try_print(text, event).is_err() {
            self.dropped += 1;
        }
    }

    fn try_print(&mut self, text: &str, event: &Value) -> io::Result<()> {
        if self.dropped > 0 {
            let dropped = self.dropped;
            let text = format!("{dropped} notices could not be written");
            self.write(&text, &json!({ "event": "dropped", "notices": dropped }))?;
            self.dropped = 0;
        }
        self.write(text, event)
    }

    fn write_event(&mut self, mut event: Value) -> io::Result<()> {
        event["at"] = timestamp(SystemTime::now()).into();
        writeln!(self.output, "{}", json_line(&event))?;
        self.output.flush()
    }

    fn write(&mut self, text: &str, event: &Value) -> io::Result<()> {
        if self.json {
            return self.write_event(event.clone());
        }
        writeln!(self.remarks, "{}", sanitize(text))?;
        self.remarks.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that fails for a while, like a disk that is temporarily full.
    struct Flaky {
        failures: usize,
        text: String,
    }

    impl Write for &mut Flaky {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.failures > 0 {
                self.failures -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn notices_that_cannot_be_written_are_dropped_and_counted() {
        let client = SocketAddr::from(([127, 0, 0, 1], 1));
        let run = |json| {
            let mut disk = Flaky { failures: 3, text: String::new() };
            let mut none = Vec::new();
            if json {
                let mut notices = Notices::new(&mut disk, none, true);
                (0..4).for_each(|_| notices.refused(client, "no member"));
            } else {
                let mut notices = Notices::new(&mut none, &mut disk, false);
                (0..4).for_each(|_| notices.refused(client, "no member"));
            }
            disk.text
        };
        let text = "3 notices could not be written\nrefused 127.0.0.1:1: no member\n";
        assert_eq!(run(false), text);
        let events = run(true);
        let events: Vec<_> = events.lines().map(|line| line.parse::<Value>().unwrap()).collect();
        assert_eq!((&events[0]["event"], &events[0]["notices"]), (&"dropped".into(), &3.into()));
        assert_eq!((events.len(), &events[1]["event"]), (2, &"refused".into()));
    }
}
