//! Tests that a file with a wrong expectation fails.

use serde_json::json;

use super::*;

pub(crate) fn file(outcome: &Value) -> Value {
    let reply = json!({
        "ok": 1, "helloOk": true, "isWritablePrimary": true, "setName": "rs", "setVersion": 1,
        "electionId": { "$oid": "000000000000000000000001" },
        "topologyVersion": {
            "processId": { "$oid": "000000000000000000000009" },
            "counter": { "$numberLong": "1" },
        },
        "hosts": ["a:27017", "b:27017"], "minWireVersion": 0, "maxWireVersion": 21,
    });
    json!({
        "description": "a primary, then an error",
        "uri": "mongodb://a/?replicaSet=rs",
        "phases": [
            { "outcome": {
                "topologyType": "ReplicaSetNoPrimary", "setName": "rs",
                "servers": { "a": { "type": "Unknown", "pool": { "generation": 0 } } },
            } },
            { "description": "both", "responses": [["a:27017", reply]],
              "outcome": outcome },
        ],
    })
}

pub(crate) fn outcome() -> Value {
    json!({
        "topologyType": "ReplicaSetWithPrimary", "setName": "rs", "maxSetVersion": 1,
        "maxElectionId": { "$oid": "000000000000000000000001" }, "compatible": true,
        "logicalSessionTimeoutMinutes": null,
        "servers": {
            "a:27017": {
                "type": "RSPrimary", "setName": "rs", "setVersion": 1, "minWireVersion": 0,
                "maxWireVersion": 21, "error": null, "pool": { "generation": 0 },
                "topologyVersion": {
                    "processId": { "$oid": "000000000000000000000009" }, "counter": 1,
                },
            },
            "b:27017": { "type": "Unknown", "setName": null, "electionId": null },
        },
    })
}

#[test]
fn every_field_of_an_outcome_is_compared() {
    assert_eq!(pure::check(&file(&outcome())), Ok(()));
    let later = "000000000000000000000002";
    for (pointer, wrong) in [
        ("/topologyType", json!("Sharded")),
        ("/setName", Value::Null),
        ("/maxSetVersion", json!(2)),
        ("/maxElectionId", json!({ "$oid": later })),
        ("/compatible", json!(false)),
        ("/logicalSessionTimeoutMinutes", json!(30)),
        ("/servers/a:27017/type", json!("RSOther")),
        ("/servers/a:27017/setVersion", Value::Null),
        ("/servers/a:27017/maxWireVersion", json!(9)),
        ("/servers/a:27017/error", json!("stale")),
        ("/servers/a:27017/pool/generation", json!(1)),
        ("/servers/a:27017/topologyVersion/counter", json!(2)),
        ("/servers/b:27017/type", json!("PossiblePrimary")),
    ] {
        let mut outcome = outcome();
        *outcome.pointer_mut(pointer).unwrap() = wrong;
        let error = pure::check(&file(&outcome)).unwrap_err();
        let path = pointer.replace("/servers", "");
        let path = path[1..].replace("27017/", "27017: ").replace('/', ".");
        let expected = format!("phase 2 (both): {path} is ");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.contains(", expected "), "{error}");
    }
}

#[test]
fn the_set_of_servers_is_compared_exactly() {
    let check = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut outcome = outcome();
        change(outcome["servers"].as_object_mut().unwrap());
        let error = pure::check(&file(&outcome)).unwrap_err();
        assert!(error.contains("the set of addresses is {a:27017, b:27017}"), "{error}");
    };
    check(&|servers| drop(servers.remove("b:27017")));
    check(&|servers| drop(servers.insert("c".into(), json!({ "type": "Unknown" }))));
}

#[test]
fn an_absent_key_asserts_nothing_and_an_unknown_one_is_refused() {
    let check = |pointer: &str, key: &str, passes: bool| {
        let mut outcome = outcome();
        let fields = outcome.pointer_mut(pointer).unwrap();
        let fields = fields.as_object_mut().unwrap();
        if fields.remove(key).is_none() {
            fields.insert(key.into(), json!(1));
        }
        assert_eq!(pure::check(&file(&outcome)).is_ok(), passes, "{pointer} {key}");
    };
    check("", "setName", true);
    check("", "maxSetVersion", true);
    check("", "servers", false);
    check("", "topologyType", false);
    check("", "surprise", false);
    check("/servers/a:27017", "setName", true);
    check("/servers/a:27017", "type", false);
    check("/servers/a:27017", "surprise", false);
    check("/servers/a:27017/pool", "surprise", false);
}

#[test]
fn application_errors_are_reported_like_those_of_pools() {
    let generation = |when: &str, of_type: &str, generation: u64| {
        let mut file = file(&outcome());
        let phase = &mut file["phases"][1];
        phase["applicationErrors"] = json!([{
            "address": "a:27017", "when": when, "type": of_type, "maxWireVersion": 21,
        }]);
        phase["outcome"] = json!({
            "topologyType": if generation == 0 {
                "ReplicaSetWithPrimary"
            } else {
                "ReplicaSetNoPrimary"
            },
            "servers": {
                "a:27017": {
                    "type": if generation == 0 { "RSPrimary" } else { "Unknown" },
                    "pool": { "generation": generation },
                },
                "b:27017": { "type": "Unknown" },
            },
        });
        assert_eq!(pure::check(&file), Ok(()), "{when} {of_type}");
    };
    generation("afterHandshakeCompletes", "network", 1);
    generation("afterHandshakeCompletes", "timeout", 0);
    // The pool labels errors that occur before the handshake as overload errors, and these do not
    // clear the pool.
    generation("beforeHandshakeCompletes", "network", 0);
    generation("beforeHandshakeCompletes", "timeout", 0);
}

fn events() -> Value {
    let empty = json!({ "topologyType": "Unknown", "servers": [] });
    let server = |name: &str| {
        let none: [&str; 0] = [];
        json!({
            "address": name, "type": "Unknown", "hosts": none, "passives": none, "arbiters": none,
        })
    };
    let both = json!({
        "topologyType": "ReplicaSetNoPrimary", "setName": "rs",
        "servers": [server("b:27017"), server("a:27017")],
    });
    json!([
        { "topology_opening_event": { "topologyId": "42" } },
        { "topology_description_changed_event": {
            "topologyId": "42", "previousDescription": empty, "newDescription": both,
        } },
        { "server_opening_event": { "topologyId": "42", "address": "b:27017" } },
        { "server_opening_event": { "topologyId": "42", "address": "a:27017" } },
    ])
}

fn opening(events: &Value) -> Result<(), String> {
    pure::check(&json!({
        "description": "opening", "uri": "mongodb://a,b/?replicaSet=rs",
        "phases": [{ "responses": [], "outcome": { "events": events } }],
    }))
}

#[test]
fn events_are_compared_in_number_order_and_content() {
    let check = |change: &dyn Fn(&mut Vec<Value>), message: &str| {
        let mut events = events();
        change(events.as_array_mut().unwrap());
        let error = opening(&events).unwrap_err();
        assert!(error.contains(message), "{error}");
    };
    assert_eq!(opening(&events()), Ok(()));
    check(
        &|events| drop(events.pop()),
        "event 3 (ServerOpening of b:27017): the address is Some(a:27017)",
    );
    check(
        &|events| events.truncate(2),
        "there are 4 events, expected 2, the unexpected ones are ServerOpening of a:27017, \
         ServerOpening of b:27017",
    );
    check(&|events| events.push(events[0].clone()), "there are 4 events, expected 5");
    check(
        &|events| events.swap(0, 1),
        "event 1 (TopologyDescriptionChanged): the name is \"TopologyOpening\"",
    );
    let changed = "/topology_description_changed_event";
    let within = |pointer: &str, wrong: &Value, message: &str| {
        let pointer = format!("{changed}/{pointer}");
        check(&|events| *events[1].pointer_mut(&pointer).unwrap() = wrong.clone(), message);
    };
    within("previousDescription/topologyType", &json!("Single"), "previously topologyType is");
    within("newDescription/setName", &Value::Null, "setName is");
    let others = "the set of addresses is";
    within("newDescription/servers", &json!([]), others);
    let hosts = "newDescription/servers/1/hosts";
    within(hosts, &json!(["c"]), "a:27017: hosts is");
    let server = json!({ "address": "b", "type": "Unknown", "mine": 1 });
    within("newDescription/servers/0", &server, "unknown field `mine`");
}
