//! Tests the client during failovers of a real replica set, and over TLS.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        atomic::AtomicI32,
        mpsc::{self, Sender},
    },
};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use futures::StreamExt;
use sdam::{
    client::{Client, Command},
    events::EventName,
};
use sdam_events::channel::unbounded;

use super::*;
use crate::tls::{certificates, start, with_client};

const WRITERS: usize = 8;

const PRIMARY_STEPPED_DOWN: i32 = 189;

/// State that the writers share.
#[derive(Default)]
struct Shared {
    /// The id of the next document to insert.
    next: AtomicI32,
    /// True if writes wait for the majority. They must wait before a primary is killed, because a
    /// write known only to the killed primary is lost. They must not wait during a step-down, which
    /// loses no writes but interrupts operations that are waiting. MongoDB 4.4 then sends an error
    /// with the topology version from before the step-down. A client that already knows this
    /// version considers the error stale, so it retries on the same server, and fails there.
    by_majority: AtomicBool,
    stop: AtomicBool,
}

impl Shared {
    fn insert(&self, id: i32) -> RawDocumentBuf {
        let concern = if self.by_majority.load(Ordering::Relaxed) {
            rawdoc! { "w": "majority" }
        } else {
            rawdoc! { "w": 1 }
        };
        rawdoc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": concern }
    }
}

/// Inserts a document and returns whether it was written. A server that steps down during the write
/// may report this as an error of the individual write. The command itself has then succeeded, so
/// the client does not retry it (I-33).
fn insert(client: &Client, insert: &RawDocumentBuf) -> Result<bool, Error> {
    let Err(error) = block_on(client.run(&Command::write("test", insert.as_bytes()))) else {
        return Ok(true);
    };
    match error.write_errors().first() {
        Some(write) if write.code == Some(PRIMARY_STEPPED_DOWN) => Ok(false),
        _ => Err(error),
    }
}

/// Inserts documents with new ids and reads each of them, until `stop` is set.
fn write(client: &Client, shared: &Shared, written: &Sender<()>) -> Result<(), Error> {
    while !shared.stop.load(Ordering::Relaxed) {
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        while !insert(client, &shared.insert(id))? {}
        let find = rawdoc! { "find": "c", "filter": { "_id": id } };
        block_on(client.run(&Command::read("test", find.as_bytes())))?;
        written.send(()).unwrap();
    }
    Ok(())
}

/// Returns the maximum number of attempts per operation, and the number of operations with more
/// than one attempt.
fn attempts(events: &[Event]) -> (usize, usize) {
    let mut attempts = BTreeMap::<i64, usize>::new();
    for event in events {
        if let EventKind::CommandStarted { command, .. } = &event.kind {
            *attempts.entry(command.operation_id.unwrap()).or_default() += 1;
        }
    }
    let retried = attempts.values().filter(|count| **count > 1).count();
    (attempts.into_values().max().unwrap_or_default(), retried)
}

#[test]
#[ignore = "deep: real servers"]
fn no_operation_needs_more_than_one_retry_through_a_step_down_and_the_kill_of_a_primary() {
    let Some(set) = replica_set() else { return };
    let host = Host::start();
    let (sink, events) = unbounded();
    let builder = Topology::builder(&set.uri()).unwrap();
    let builder = builder.sink(sink.interested_in(Interest::COMMANDS));
    let client = builder.client(host.runtime.clone()).unwrap();
    let shared = Arc::<Shared>::default();
    // Creates the collection before the failovers, because creating it takes so long that a
    // failover could interrupt it.
    let first = shared.insert(shared.next.fetch_add(1, Ordering::Relaxed));
    block_on(client.run(&Command::write("test", first.as_bytes()))).unwrap();
    let (written, all_written) = mpsc::channel();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (client, shared) = (client.clone(), Arc::clone(&shared));
            let written = written.clone();
            thread::spawn(move || write(&client, &shared, &written))
        })
        .collect();
    drop(written);
    // Waits until the writers have written and read more documents, not counting those from before
    // the call. This happens before, between and after the failovers. If all writers have failed,
    // the wait ends, and joining their threads shows the reason.
    let wait_for_more = || {
        all_written.try_iter().for_each(drop);
        all_written.iter().take(10 * WRITERS).for_each(drop);
    };
    wait_for_more();
    set.step_down().unwrap();
    wait_for_more();
    shared.by_majority.store(true, Ordering::Relaxed);
    wait_for_more();
    let primary = set.primary().unwrap();
    set.member(primary).kill().unwrap();
    wait_for_more();
    shared.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap().unwrap();
    }
    let count = rawdoc! { "count": "c" };
    let reply = block_on(client.run(&Command::read("test", count.as_bytes()))).unwrap();
    let reply = RawDocument::from_bytes(reply.body()).unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), shared.next.load(Ordering::Relaxed));
    block_on(client.close());
    let events: Vec<_> = block_on(events.collect());
    let (most, retried) = attempts(&events);
    assert!(most <= 2 && retried > 0, "{retried} operations were retried, up to {most} attempts");
    let count = |name: EventName| events.iter().filter(|event| event.kind.name() == name).count();
    assert_eq!(
        count(EventName::CommandStarted),
        count(EventName::CommandSucceeded) + count(EventName::CommandFailed)
    );
}

/// Returns the authenticated user, or the error.
fn authenticated(mongod: &Mongod, user_info: &str, options: &str) -> Result<String, String> {
    let host = Host::start().with_tls(Rustls::ring());
    let uri = format!("mongodb://{user_info}{}/?directConnection=true&{options}", mongod.host());
    let client = Client::start(&uri, host.runtime.clone()).unwrap();
    let status = rawdoc! { "connectionStatus": 1 };
    let reply = block_on(client.run(&Command::read("admin", status.as_bytes())));
    block_on(client.close());
    let reply = reply.map_err(|error| format!("{error:#}"))?;
    let reply = RawDocument::from_bytes(reply.body()).unwrap();
    let users = reply.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    let user = users.into_iter().next().unwrap().unwrap();
    Ok(user.as_document().unwrap().get_str("user").unwrap().to_owned())
}

/// Authenticates with MONGODB-X509: first without a user name, so that the server derives the user
/// from the certificate, and then with an explicit user name.
#[test]
#[ignore = "deep: real servers"]
fn a_client_certificate_authenticates_the_user_of_its_subject() {
    // The user name is sent only if it is given (O-5, T-7).
    let certificates = certificates();
    let tls = ServerTls::new(&certificates).require_client_certificates();
    let Some(mongod) = start(&tls) else { return };
    let x509 = format!("{}&authMechanism=MONGODB-X509", with_client(&certificates));
    let error = authenticated(&mongod, "", &x509).unwrap_err();
    assert!(error.contains("at auth"), "the server does not know the user: {error}");
    let create = doc! { "createUser": Certificates::CLIENT, "roles": [] };
    mongod.run_command("$external", create).unwrap();
    let mut encoded = String::new();
    for byte in Certificates::CLIENT.bytes() {
        write!(encoded, "%{byte:02x}").unwrap();
    }
    for user_info in ["", &format!("{encoded}@")] {
        let user = authenticated(&mongod, user_info, &x509);
        assert_eq!(user.as_deref(), Ok(Certificates::CLIENT));
    }
    let error = authenticated(&mongod, "CN=other@", &x509).unwrap_err();
    assert!(error.contains("at auth"), "{error}");
}

/// The server refuses PLAIN, because only the Enterprise edition supports it, and only together
/// with an LDAP server.
#[test]
#[ignore = "deep: real servers"]
fn plain_is_offered_to_a_server_over_tls_which_lacks_it() {
    let certificates = certificates();
    let Some(mongod) = start(&ServerTls::new(&certificates)) else {
        return;
    };
    let plain = format!("{}&authMechanism=PLAIN", certificates.options());
    let error = authenticated(&mongod, "ada:pencil@", &plain).unwrap_err();
    assert!(error.contains("at auth") && error.contains("PLAIN"), "{error}");
}
