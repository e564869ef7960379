//! Compares complete documents, because scripts rely on every key and its spelling.

use bson::{DateTime, Document, doc, oid::ObjectId};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    ids::ServerId,
    time::Instant,
    topology::TopologyType,
};

use super::*;
use crate::watch::script::{Role, Script};

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

#[test]
fn topologies_have_their_max_election_and_incompatibility() {
    let wire = doc! { "minWireVersion": 900, "maxWireVersion": 901 };
    let script = Script::open("mongodb://b/?replicaSet=rs0");
    let script = script.answers_with("b", Role::Primary(9), 1, &wire);
    let actual = snapshot(&script.model.topology);
    for (key, expected) in [
        ("setName", json!("rs0")),
        ("maxSetVersion", json!(4)),
        ("maxElectionId", json!("7fffffff0000000000000009")),
        ("compatible", json!(false)),
    ] {
        assert_eq!(actual[key], expected, "{key}");
    }
    let error = actual["compatibilityError"].as_str().unwrap();
    assert!(error.contains("900"), "{error}");
}
