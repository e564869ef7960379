//! Compares complete documents, because scripts rely on every key and its spelling.

use bson::{DateTime, Document, doc, oid::ObjectId};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    ids::ServerId,
    options::Options,
    time::Instant,
    topology::TopologyType,
};

use super::*;

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}

fn answered(name: &str, reply: &Document, rtt: Option<Rtt>) -> ServerDescription {
    let hello = Hello::parse(&reply.to_vec().unwrap()).unwrap();
    let id = ServerId::from_u64(1);
    ServerDescription::from_hello(id, address(name), hello, rtt, Instant::EPOCH)
}

/// Checks the complete document, including the order of its keys.
fn check(topology: &TopologyDescription, expected: &Value) {
    let actual = snapshot(topology);
    assert_eq!(actual, *expected);
    assert_eq!(actual.to_string(), expected.to_string());
}

fn primary() -> Document {
    let id = |last| ObjectId::from_bytes([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, last]);
    doc! {
        "ok": 1, "isWritablePrimary": true, "setName": "rs", "setVersion": 2,
        "electionId": id(9), "me": "b:27017", "primary": "b:27017",
        "hosts": ["b:27017", "A"], "passives": ["d:1"], "arbiters": ["c:27017"],
        "tags": { "use": "web", "dc": "ny" }, "minWireVersion": 0, "maxWireVersion": 21,
        "topologyVersion": { "processId": id(1), "counter": 6_i64 },
        "lastWrite": { "lastWriteDate": DateTime::from_millis(1_767_323_045_678) },
        "logicalSessionTimeoutMinutes": 30,
    }
}

#[test]
fn every_known_field_has_a_key() {
    let rtt = Rtt {
        average: Duration::from_nanos(1_234_567),
        minimum: Duration::from_micros(900),
        ..Rtt::default()
    };
    let error = Error::new(ErrorKind::Network, Stage::Connect, "refused");
    let id = ServerId::from_u64(2);
    let topology = TopologyDescription::new(
        TopologyType::ReplicaSetWithPrimary,
        [
            answered("b", &primary(), Some(rtt)),
            ServerDescription::failed(id, address("a"), error, Instant::EPOCH),
        ],
    );
    let expected = json!({
        "schema": "sdam.topology/1", "topologyType": "ReplicaSetWithPrimary", "setName": null, "maxSetVersion": null,
        "maxElectionId": null, "compatible": true, "compatibilityError": null,
        "logicalSessionTimeoutMinutes": 30,
        "servers": [
            {
                "address": "a:27017", "type": "Unknown", "rttMs": null, "minRttMs": null,
                "setName": null, "setVersion": null, "electionId": null, "primary": null,
                "me": null, "hosts": [], "passives": [], "arbiters": [], "tags": {},
                "minWireVersion": null, "maxWireVersion": null, "topologyVersion": null,
                "lastWriteDate": null, "logicalSessionTimeoutMinutes": null,
                "error": "network error at connect: refused",
            },
            {
                "address": "b:27017", "type": "RSPrimary", "rttMs": 1.234, "minRttMs": 0.9,
                "setName": "rs", "setVersion": 2, "electionId": "7fffffff0000000000000009",
                "primary": "b:27017", "me": "b:27017", "hosts": ["a:27017", "b:27017"],
                "passives": ["d:1"], "arbiters": ["c:27017"],
                "tags": { "dc": "ny", "use": "web" },
                "minWireVersion": 0, "maxWireVersion": 21,
                "topologyVersion": { "processId": "7fffffff0000000000000001", "counter": 6 },
                "lastWriteDate": 1_767_323_045_678_i64, "logicalSessionTimeoutMinutes": 30,
                "error": null,
            },
        ],
        "departures": [],
    });
    check(&topology, &expected);
}

/// Runs a state machine, because these fields are set only in a topology that has a history.
#[test]
fn topologies_have_their_max_election_and_incompatibility() {
    use std::sync::Arc;

    use sdam_core::{
        deployment::{ConnId, Deployment, Input, Role, Timer},
        hello::{Handshake, HelloReply},
        monitor::MonitorConfig,
        rng::Rng,
    };

    let options = Options::parse("mongodb://b/?replicaSet=rs").unwrap();
    let config = MonitorConfig::new(&options, Arc::new(Handshake::new([])), false);
    let mut machine = Deployment::new(options.clone(), Arc::new(config), Rng::new(1));
    let now = Instant::EPOCH;
    drop(machine.handle(now, Input::Open));
    let mut reply = primary();
    reply.insert("minWireVersion", 900);
    reply.insert("maxWireVersion", 901);
    let server = machine.description().servers()[0].id;
    let conn = ConnId { server, role: Role::Check, number: 1 };
    let reply = HelloReply::parse(reply.to_vec().unwrap());
    for input in [
        Input::Due { timer: Timer::Server(server), wanted: false },
        Input::Connected { conn },
        Input::Reply { conn, sent: now, at: now, reply, more_to_come: false },
    ] {
        drop(machine.handle(now, input));
    }
    let actual = snapshot(machine.description());
    let of_topology = |key: &str| &actual[key];
    assert_eq!(of_topology("setName"), "rs");
    assert_eq!(of_topology("maxSetVersion"), 2);
    assert_eq!(of_topology("maxElectionId"), "7fffffff0000000000000009");
    assert_eq!(of_topology("compatible"), false);
    let error = of_topology("compatibilityError").as_str().unwrap();
    assert!(error.contains("900"), "{error}");
    let servers = of_topology("servers").as_array().unwrap();
    let addresses: Vec<_> = servers.iter().map(|server| &server["address"]).collect();
    assert_eq!(addresses, ["a:27017", "b:27017", "c:27017", "d:1"]);
}

#[test]
fn a_load_balancer_has_no_fields_of_a_reply() {
    let mut balancer = ServerDescription::unknown(ServerId::from_u64(1), address("lb:1"));
    balancer.server_type = ServerType::LoadBalancer;
    let topology = TopologyDescription::new(TopologyType::LoadBalanced, [balancer]);
    let actual = snapshot(&topology);
    let server = &actual["servers"][0];
    assert_eq!(server["type"], "LoadBalancer");
    for key in ["rttMs", "minRttMs", "minWireVersion", "maxWireVersion"] {
        assert_eq!(server.get(key), Some(&Value::Null), "{key}");
    }
}
