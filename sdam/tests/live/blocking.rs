//! Blocking mode with real servers.

use std::time::Instant;

use sdam::{BlockingTopology, SelectedServer};
use sdam_live::ROOT;

use super::*;
use crate::tls::{certificates, with_client};

fn start(uri: &str, options: &str) -> BlockingTopology {
    let separator = if uri.contains('?') { '&' } else { '?' };
    let uri = format!("{uri}{separator}{options}");
    BlockingTopology::builder(&uri).unwrap().blocking().unwrap()
}

/// Runs a command on the server, and returns the reply if the command succeeded.
fn run(
    topology: &mut BlockingTopology,
    server: &SelectedServer,
    command: &Document,
) -> Option<Document> {
    let command = command.to_vec().unwrap();
    let reply = topology.run_command(server.id(), &command, Some(PATIENCE)).ok()?;
    Some(Document::from_reader(reply.body()).unwrap())
}

/// Writes to the current primary until a write succeeds, as an application with retries would.
/// Returns the host that accepted the write.
///
/// This function need not sleep between attempts, because a selection itself waits for a primary
/// until its timeout.
fn write(topology: &mut BlockingTopology) -> String {
    let insert = doc! { "insert": "things", "documents": [{ "x": 1 }], "$db": "test" };
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

#[test]
#[ignore = "deep: real servers"]
fn a_standalone_is_found_lost_and_found_again() {
    // An idle connection is probed, and a server that failed is skipped for 5 s (H-1, H-6, H-12,
    // I-15).
    let Some(mongod) = standalone() else { return };
    let mut topology = start(&mongod.uri(), "connectTimeoutMS=5000");
    let selected = topology.select(&Criteria::write()).unwrap();
    assert_eq!(topology.description().topology_type(), TopologyType::Single);
    assert_eq!(selected.server_type(), ServerType::Standalone);
    let ping = doc! { "ping": 1, "$db": "admin" };
    assert!(run(&mut topology, &selected, &ping).is_some());
    mongod.kill().unwrap();
    assert!(run(&mut topology, &selected, &ping).is_none());
    let failed = Instant::now();
    assert!(topology.select(&Criteria::write()).is_err());
    mongod.restart().unwrap();
    let begun = Instant::now();
    // Until the cooldown is over, each selection fails after half a second without a check.
    while topology.select(&Criteria::write()).is_err() {
        assert!(begun.elapsed() < PATIENCE, "{}", topology.description());
    }
    assert!(failed.elapsed() >= Duration::from_secs(5), "H-6");
    assert!(run(&mut topology, &selected, &ping).is_some());
}

#[test]
#[ignore = "deep: real servers"]
fn the_user_of_the_connection_string_is_authenticated_before_the_first_command() {
    // A connection is authenticated before its first operation (H-17).
    let Some(mongod) = or_skip(Mongod::start_secured(version())).unwrap() else {
        return;
    };
    let (user, password) = ROOT;
    let uri = |password| format!("mongodb://{user}:{password}@{}/", mongod.host());
    let start = |uri: &str| {
        let builder = BlockingTopology::builder(uri).unwrap();
        builder.authenticate().unwrap().blocking().unwrap()
    };
    let mut topology = start(&uri(password));
    let selected = topology.select(&Criteria::write()).unwrap();
    let count = doc! { "dbStats": 1, "$db": "test" };
    assert!(run(&mut topology, &selected, &count).is_some());
    let status = doc! { "connectionStatus": 1, "$db": "admin" };
    let status = run(&mut topology, &selected, &status).unwrap();
    let users = status.get_document("authInfo").unwrap();
    let users = users.get_array("authenticatedUsers").unwrap();
    assert_eq!(*users, [doc! { "user": user, "db": "admin" }.into()]);
    mongod.kill().unwrap();
    assert!(run(&mut topology, &selected, &count).is_none());
    mongod.restart().unwrap();
    let begun = Instant::now();
    while topology.select(&Criteria::write()).is_err() {
        assert!(begun.elapsed() < PATIENCE, "{}", topology.description());
    }
    assert!(run(&mut topology, &selected, &count).is_some());

    let mut topology = start(&uri("wrong"));
    let selected = topology.select(&Criteria::write()).unwrap();
    let count = count.to_vec().unwrap();
    let error = topology.run_command(selected.id(), &count, Some(PATIENCE));
    let error = error.unwrap_err();
    assert_eq!((error.code(), error.stage()), (Some(18), Stage::Auth));
    // A failed authentication marks the server Unknown (I-14).
    assert_eq!(error.outcome(), Some(ErrorOutcome::Cleared));
    assert_eq!(topology.description().servers()[0].server_type, ServerType::Unknown);
}

#[test]
#[ignore = "deep: real servers"]
fn writes_reach_the_new_primary_after_a_step_down_and_after_a_kill() {
    // An error from the old primary causes a scan, which finds the new primary (H-5, I-38, I-15,
    // L-67).
    let Some(set) = replica_set() else { return };
    let mut topology = start(&set.uri(), "serverSelectionTryOnce=false&connectTimeoutMS=5000");
    let first = write(&mut topology);
    assert_eq!(topology.description().servers().len(), 3);
    let secondary = topology.select(&Criteria::read(ReadMode::Secondary).unwrap()).unwrap();
    assert_ne!(secondary.address().as_str(), first);
    assert_eq!(secondary.server_type(), ServerType::RsSecondary);

    // The member that accepts a write is the primary. The test does not ask the set in advance,
    // because the set may hold an election at any time.
    let old = set.step_down().unwrap();
    assert_ne!(write(&mut topology), set.member(old).host());

    let victim = set.primary().unwrap();
    set.member(victim).kill().unwrap();
    assert_ne!(write(&mut topology), set.member(victim).host());
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "deep: real servers"]
fn writes_over_tls_reach_the_new_primary_and_a_foreign_authority_is_refused() {
    let certificates = certificates();
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let tls = ServerTls::new(&certificates).require_client_certificates();
    let set = ReplicaSet::builder(version()).tls(tls);
    let Some(set) = or_skip(set.start(&members)).unwrap() else {
        return;
    };
    let wait = "serverSelectionTryOnce=false&connectTimeoutMS=5000";
    let mut topology = start(&set.uri(), &format!("{wait}&{}", with_client(&certificates)));
    write(&mut topology);
    let old = set.step_down().unwrap();
    assert_ne!(write(&mut topology), set.member(old).host());

    let other = certificates.other_authority();
    let mut topology = start(&set.uri(), &format!("tls=true&tlsCAFile={}", other.display()));
    topology.scan();
    let error = topology.description().servers()[0].error.clone().unwrap();
    assert_eq!(error.stage(), Stage::Tls, "{error}");
}
