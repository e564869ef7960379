//! Tests a topology whose monitors get no replies, so that a driver's test can supply the results
//! of checks.

use std::{sync::Arc, time::Duration};

use bson::doc;
use futures::{StreamExt, executor::block_on};
use sdam::{
    Criteria, Error, ErrorKind, ObjectId, ServerAddress, ServerType, Stage, Topology, TopologyType,
    testing::play_check,
};
use sdam_events::channel::unbounded;
use sdam_testkit::{ManualClock, Server, Servers};

use crate::{on, tokio};

#[test]
fn played_checks_change_the_topology_and_all_events_carry_the_given_id() {
    let host = tokio();
    let mut runtime = on(&host);
    let servers = Servers::new(ManualClock::default(), Server::silent());
    runtime.backend.transport = Arc::new(servers);
    let id = ObjectId::from_bytes(*b"twelve bytes");
    let (sink, events) = unbounded();
    let topology = Topology::builder("mongodb://a,b/?replicaSet=rs&connectTimeoutMS=0")
        .unwrap()
        .id(id)
        .sink(sink)
        .start(runtime)
        .unwrap();
    assert_eq!(topology.id(), id);
    let [a, b] = ["a:27017", "b:27017"].map(|text| ServerAddress::parse(text).unwrap());
    let server = topology.server(&a).unwrap();

    let hello = doc! {
        "ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["a:27017"], "me": "a:27017",
        "minWireVersion": 0, "maxWireVersion": 21,
    };
    let hello = hello.to_vec().unwrap();
    let rtt = Duration::from_millis(7);
    play_check(&topology, server.id(), Ok(&hello), rtt);
    assert!(topology.server(&b).is_none());
    let primary = topology.try_select(&Criteria::write()).unwrap().unwrap();
    assert_eq!(*primary.address(), a);
    let known = topology.server(&a).unwrap();
    assert_eq!(known.description().rtt.unwrap().average, rtt);

    let failure = Error::new(ErrorKind::Network, Stage::Hello, "played");
    play_check(&topology, server.id(), Err(failure), Duration::ZERO);
    let snapshot = topology.snapshot().description().clone();
    assert_eq!(snapshot.topology_type(), TopologyType::ReplicaSetNoPrimary);
    let server = &snapshot.servers()[0];
    assert_eq!(server.server_type, ServerType::Unknown);
    assert_eq!(server.error.as_ref().unwrap().message(), "played");

    // A reply to something other than hello is also a failure.
    play_check(&topology, server.id, Ok(b"not BSON"), rtt);
    let server = topology.server(&a).unwrap();
    let error = server.description().error.as_ref().unwrap();
    assert_eq!(error.kind(), ErrorKind::Protocol);

    block_on(topology.close());
    let events: Vec<_> = block_on(events.collect());
    assert!(events.len() > 8);
    assert!(events.iter().all(|event| event.topology == id));
}
