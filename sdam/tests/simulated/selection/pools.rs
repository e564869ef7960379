//! Pools that panic or publish events while the topology calls them: the panic reaches the caller,
//! and the remaining effects still run.

use std::{pin::pin, time::Duration};

use bson::doc;
use futures::FutureExt as _;
use sdam::{
    Criteria, Interest, ReadMode, ReadPreference, ServerType,
    error::{ErrorReport, Stage},
    events::EventName,
    pool::Generation,
};
use sdam_core::options::MIN_HEARTBEAT_FREQUENCY;
use sdam_core::reply;
use sdam_events::channel::{EventStream, unbounded};
use sdam_testkit::{RecordingPools, Server};

use super::harness::{Harness, hosts};
use crate::{assert_pool_panics, drain};

/// Returns the report of an error from a server that is shutting down.
fn shutdown() -> ErrorReport {
    let reply = doc! { "ok": 0, "code": 91, "errmsg": "shutting down" };
    let error = reply::error(&reply.to_vec().unwrap(), Stage::Operation);
    ErrorReport::new(Generation::FIRST, error.unwrap())
}

/// Returns the names of the events so far.
fn names(events: &mut EventStream) -> Vec<EventName> {
    let events = drain(events).into_iter();
    events.map(|event| event.kind.name()).collect()
}

#[test]
fn a_server_is_checked_again_after_its_pool_panicked_in_clear() {
    let (hosts, pools) = (hosts(3), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    let (sink, mut events) = unbounded();
    let sink = sink.interested_in(Interest::POOLS);
    let topology = harness.start(&hosts, |builder| builder.pools(pools.clone()).sink(sink));
    let primary = topology.try_select(&Criteria::write()).unwrap().unwrap();
    pools.break_at("clear");
    assert_pool_panics(|| topology.reporter(primary.id()).handle_error(&shutdown()));
    let role = || topology.snapshot().server(&hosts[0]).unwrap().description().server_type;
    assert_eq!(role(), ServerType::Unknown);
    // I-35: the error requests a check, which still happens after the pool has panicked. No
    // selection is waiting that could have requested this check.
    harness.pass(MIN_HEARTBEAT_FREQUENCY);
    assert_eq!(role(), ServerType::RsPrimary);
    assert!(names(&mut events).contains(&EventName::PoolCleared));
}

#[test]
fn every_pool_is_closed_even_if_one_panics_during_the_start_or_at_the_end() {
    for (method, left) in [("create", 2), ("close", 3)] {
        let (hosts, pools) = (hosts(3), RecordingPools::default());
        let mut harness = Harness::with_replica_set(&hosts);
        let (sink, mut events) = unbounded();
        pools.break_at(method);
        assert_pool_panics(|| {
            let topology = harness.start(&hosts, |builder| builder.pools(pools.clone()).sink(sink));
            drop(topology);
        });
        harness.settle();
        assert_eq!((pools.count("create"), pools.count("close")), (3, left));
        let names = names(&mut events);
        assert_eq!(names.last(), Some(&EventName::TopologyClosed));
        let closed = names.iter().filter(|name| **name == EventName::ServerClosed);
        assert_eq!(closed.count(), 3, "{method}");
    }
}

#[test]
fn a_pool_is_prepared_once_and_not_after_it_was_ready() {
    let (hosts, pools) = (hosts(2), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    for host in &hosts {
        harness.servers.set(host, Server::silent());
    }
    let topology = harness.spawn(&hosts, |builder| builder.pools(pools.clone()));
    let wait = |mode| {
        let criteria = Criteria::read(ReadPreference::new(mode)).unwrap();
        assert!(topology.select(&criteria).now_or_never().is_none());
    };
    wait(ReadMode::Primary);
    assert_eq!(pools.count("prepare"), 0, "no check waits for its server");
    harness.settle();
    for _ in 0..2 {
        wait(ReadMode::Primary);
        assert_eq!(pools.count("prepare"), 2);
    }
    for (index, host) in hosts.iter().enumerate() {
        harness.servers.set(host, Server::member(&hosts, index == 0));
    }
    harness.pass(Duration::from_secs(60));
    assert_eq!(pools.count("ready"), 2);
    // The second server displaces the first one, which does not answer any more.
    harness.servers.set(&hosts[0], Server::silent());
    harness.servers.set(&hosts[1], Server::member(&hosts, true));
    harness.pass(Duration::from_secs(10));
    let displaced = topology.snapshot();
    assert_eq!(displaced.server(&hosts[0]).unwrap().description().last_update_time, None);
    wait(ReadMode::Secondary);
    assert_eq!(pools.count("prepare"), 2);
}

#[test]
fn a_pool_that_panics_when_it_is_prepared_does_not_end_the_checks_of_its_server() {
    let (hosts, pools) = (hosts(1), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    harness.servers.set(&hosts[0], Server::silent());
    let topology = harness.spawn(&hosts, |builder| builder.pools(pools.clone()));
    pools.break_at("prepare");
    let criteria = Criteria::write();
    let mut selection = pin!(topology.select(&criteria));
    assert!(selection.as_mut().now_or_never().is_none());
    harness.settle();
    assert_eq!(pools.count("prepare"), 1);
    harness.servers.set(&hosts[0], Server::member(&hosts, true));
    harness.pass(Duration::from_secs(11));
    assert!(selection.now_or_never().unwrap().is_ok());
}

#[test]
fn a_pool_whose_creation_panicked_is_created_before_its_server_is_selected() {
    let (hosts, pools) = (hosts(3), RecordingPools::default());
    let mut harness = Harness::with_replica_set(&hosts);
    pools.break_after(1, "create");
    let topology = harness.start(&hosts[..1], |builder| {
        let builder = builder.options(|options| options.replica_set = Some("rs".into()));
        builder.pools(pools.clone())
    });
    assert_eq!(topology.snapshot().servers().len(), 3);
    let primary = topology.try_select(&Criteria::write()).unwrap().unwrap();
    assert!(pools.generations().contains_key(&primary.id()));
    assert_eq!(pools.count("create"), 4, "one creation failed");
}
