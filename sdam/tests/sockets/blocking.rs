//! Tests blocking mode on real sockets, with simulated deployments on loopback and with mongod.
//!
//! `SDAM_LIVE_VERSION` (4.2, 4.4, 5.0, 6.0) selects the version of mongod.

mod addresses;
mod live;
mod pooled;
mod served;
#[cfg(feature = "tls")]
mod tls;

use std::time::Instant;

use bson::{Document, RawDocument, RawDocumentBuf};
use sdam::{BlockingTopology, Criteria, ReadMode, ReadPreference, SelectedServer, SelectionError};

use crate::PATIENCE;

fn start(uri: &str, options: &str) -> BlockingTopology {
    let separator = if uri.contains('?') { '&' } else { '?' };
    let uri = format!("{uri}{separator}{options}");
    BlockingTopology::builder(&uri).unwrap().blocking().unwrap()
}

fn read(mode: ReadMode) -> Criteria {
    Criteria::read(ReadPreference::new(mode)).unwrap()
}

/// Runs a command on the server, and returns the reply if the command succeeded.
fn run(
    topology: &mut BlockingTopology,
    server: &SelectedServer,
    command: &Document,
) -> Option<Document> {
    let command = RawDocumentBuf::try_from(command).unwrap();
    let reply = topology.run_command(server.id(), command.as_bytes(), Some(PATIENCE));
    let reply = RawDocument::from_bytes(reply.as_ref().ok()?.body()).unwrap();
    Some(Document::try_from(reply).unwrap())
}

/// Writes to the current primary until a write succeeds, as an application with retries would.
/// Returns the host that accepted the write.
///
/// This function need not sleep between attempts, because a selection itself waits for a primary
/// until its timeout.
fn write(topology: &mut BlockingTopology) -> String {
    let insert = bson::doc! { "insert": "things", "documents": [{ "x": 1 }], "$db": "test" };
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "{}", topology.description());
        let selected = match topology.select(&Criteria::write()) {
            Ok(selected) => selected,
            Err(SelectionError::Timeout(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        let reply = run(topology, &selected, &insert);
        if reply.is_some_and(|reply| reply.get("n") == Some(&1.into())) {
            return selected.address().to_string();
        }
    }
}
