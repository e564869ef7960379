//! Blocking mode with real servers.

use std::time::{Duration, Instant};

use bson::doc;
use sdam::{
    BlockingTopology, Criteria, ReadMode, ServerType, TopologyType,
    error::{ErrorOutcome, Stage},
};
use sdam_live::{Error, MemberSpec, Mongod, ROOT, ReplicaSet, Version, or_skip};

use super::{read, run, start, write};
use crate::PATIENCE;

pub(super) fn version() -> Option<Version> {
    let version = std::env::var("SDAM_LIVE_VERSION").ok()?;
    Some(version.parse().unwrap())
}

/// Starts a replica set of three members that elects quickly; `None` if no server is available.
fn replica_set() -> Option<ReplicaSet> {
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    or_skip(ReplicaSet::start(version(), &members)).unwrap()
}

#[test]
#[ignore = "deep: real servers"]
fn a_standalone_is_found_lost_and_found_again() {
    // An idle connection is probed, and a server that failed is skipped for 5 s (H-1, H-6, H-12,
    // I-15).
    let started: Result<Mongod, Error> = Mongod::start(version());
    let Some(mongod) = or_skip(started).unwrap() else {
        return;
    };
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
    // An error from the old primary causes a scan, which finds the new one (H-5, I-38, I-15, L-67).
    let Some(set) = replica_set() else { return };
    let mut topology = start(&set.uri(), "serverSelectionTryOnce=false&connectTimeoutMS=5000");
    let first = write(&mut topology);
    assert_eq!(topology.description().servers().len(), 3);
    let secondary = topology.select(&read(ReadMode::Secondary)).unwrap();
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
