//! Tests of the runner: differences and unknown content must be reported.

use std::sync::Arc;

use sdam_testkit::{DroppedTasks, ManualClock, Server, Servers};
use sdam_transport::Io;
use serde_json::json;

use super::*;

fn matching(expected: &Value, actual: &Value) -> Result<(), String> {
    super::matching::check(expected, actual)
}

#[test]
fn values_match_by_the_rules_of_the_format() {
    let check = |expected: Value, actual: Value| {
        assert_eq!(matching(&expected, &actual), Ok(()));
    };
    check(json!({ "a": 1 }), json!({ "a": 1.0, "b": 2 }));
    check(json!({ "a": { "$$exists": true } }), json!({ "a": null }));
    check(json!({ "a": { "$$exists": false } }), json!({}));
    check(
        json!({ "a": { "$$type": ["int", "long"] } }),
        json!({ "a": 1 }),
    );
    check(json!({ "a": { "$$type": "double" } }), json!({ "a": 1.5 }));
    check(
        json!({ "a": [{ "b": "c" }, true] }),
        json!({ "a": [{ "b": "c" }, true] }),
    );
    let reply = json!({ "a": { "$$matchAsDocument": { "$$matchAsRoot": { "ok": 1 } } } });
    check(reply, json!({ "a": r#"{"ok":1.0,"more":{}}"# }));
}

#[test]
fn differences_have_their_path() {
    let check = |expected: Value, actual: Value, error: &str| {
        assert_eq!(matching(&expected, &actual), Err(error.to_owned()));
    };
    check(json!({ "a": 1 }), json!({ "a": 2 }), ".a is 2, expected 1");
    check(json!({ "a": 1 }), json!({}), ".a is absent, expected 1");
    check(
        json!({ "a": { "b": 1 } }),
        json!({ "a": { "b": 1, "c": 1 } }),
        ".a.c is not expected",
    );
    check(
        json!({ "a": [1] }),
        json!({ "a": [2] }),
        ".a[0] is 2, expected 1",
    );
    check(
        json!({ "a": [1] }),
        json!({ "a": [1, 1] }),
        ".a is [1,1], expected [1]",
    );
    check(
        json!({ "a": { "$$exists": true } }),
        json!({}),
        ".a is absent",
    );
    let absent = json!({ "a": { "$$exists": false } });
    check(absent, json!({ "a": 1 }), ".a is 1, expected to be absent");
    let typed = json!({ "a": { "$$type": "string" } });
    check(
        typed.clone(),
        json!({ "a": 1 }),
        r#".a is 1, expected the type "string""#,
    );
    check(typed, json!({}), ".a is absent");
    let document = json!({ "a": { "$$matchAsDocument": { "ok": 1 } } });
    let more = json!({ "a": r#"{"ok":1,"more":1}"# });
    check(document.clone(), more, ".a.more is not expected");
    check(document, json!({ "a": "1" }), ".a is not a document: 1");
    let unknown = json!({ "a": { "$$sessionLsid": "b" } });
    let error = r#".a is expected to be $$sessionLsid "b", which is unknown"#;
    check(unknown, json!({ "a": 1 }), error);
}

fn logs(messages: &[&str]) -> log::Logs {
    let message = |text: &&str| json!({ "level": "debug", "component": "topology", "data": { "message": text, "x": 1 } });
    log::Logs::from([("c".to_owned(), messages.iter().map(message).collect())])
}

fn expected(messages: &[&str], more: &Value) -> Value {
    let message = |text: &&str| json!({ "level": "debug", "component": "topology", "data": { "message": text } });
    let mut expected = json!({ "client": "c" });
    expected["messages"] = messages.iter().map(message).collect();
    let more = more.as_object().cloned().unwrap_or_default();
    expected.as_object_mut().unwrap().extend(more);
    json!([expected])
}

#[test]
fn messages_are_compared_in_order_without_gaps() {
    let check = |messages: &[&str], more: Value, passes: bool| {
        let expected = expected(&["a", "b"], &more);
        let result = log::check(&expected, &logs(messages));
        assert_eq!(result.is_ok(), passes, "{messages:?}: {result:?}");
    };
    check(&["a", "b"], json!({}), true);
    check(&["b", "a"], json!({}), false);
    check(&["a"], json!({}), false);
    check(&["a", "c", "b"], json!({}), false);
    check(&["a", "b", "c"], json!({}), false);
    check(
        &["a", "b", "c"],
        json!({ "ignoreExtraMessages": true }),
        true,
    );
    check(
        &["a", "c", "b"],
        json!({ "ignoreExtraMessages": true }),
        false,
    );
    let ignored = json!({ "level": "debug", "component": "topology", "data": { "message": "c" } });
    let ignore = json!({ "ignoreMessages": [ignored] });
    check(&["c", "a", "c", "b"], ignore.clone(), true);
    check(&["c", "a", "c", "b", "d"], ignore, false);
}

#[test]
fn messages_of_another_level_or_component_do_not_match() {
    let check = |key: &str, value: &str| {
        let mut expected = expected(&["a"], &json!({}));
        expected[0]["messages"][0][key] = value.into();
        assert!(log::check(&expected, &logs(&["a"])).is_err(), "{key}");
    };
    assert!(log::check(&expected(&["a"], &json!({})), &logs(&["a"])).is_ok());
    check("level", "info");
    check("component", "serverSelection");
}

/// Creates a host without real deployments, for errors that come earlier.
fn host() -> Host {
    let block_on = |future: BoxFuture<'_, ()>| futures::executor::block_on(future);
    Host::new(Arc::new(DroppedTasks), block_on).with_deployments(move |_| {
        let clock = ManualClock::default();
        let servers = Servers::new(clock.clone(), Server::silent());
        let io = Io::new(Arc::new(clock), Arc::new(servers), 1);
        let runtime = Runtime::new(io, Arc::new(DroppedTasks));
        Ok(TestDeployment::new(
            "mongodb://a/",
            (8, 0),
            runtime,
            block_on,
            (),
        ))
    })
}

fn play_one(requirement: &Value, operation: &Value) -> Result<(), String> {
    let client = json!({ "client": {
        "id": "c", "observeLogMessages": { "serverSelection": "debug" },
        "uriOptions": { "serverSelectionTimeoutMS": 0 },
    } });
    let file = json!({
        "description": "file",
        "schemaVersion": "1.14",
        "runOnRequirements": [requirement],
        "createEntities": [
            client,
            { "database": { "id": "d", "client": "c", "databaseName": "test" } },
            { "collection": { "id": "x", "database": "d", "collectionName": "x" } },
        ],
        "tests": [{
            "description": "test",
            "operations": [operation],
            "expectLogMessages": [{ "client": "c", "messages": [], "ignoreExtraMessages": true }],
        }],
    });
    logging(&host(), &file)
}

fn insert(expect_error: Option<bool>) -> Value {
    let mut insert = json!({
        "name": "insertOne", "object": "x", "arguments": { "document": { "a": 1 } },
    });
    if let Some(by_client) = expect_error {
        insert["expectError"] = json!({ "isClientError": by_client });
    }
    insert
}

#[test]
fn operations_end_as_expected_or_the_file_fails() {
    let single = || json!({ "topologies": ["single"] });
    assert_eq!(play_one(&single(), &insert(Some(true))), Ok(()));
    let check = |operation: Value, said: &str| {
        let error = play_one(&single(), &operation).unwrap_err();
        assert!(
            error.starts_with("test: ") && error.contains(said),
            "{error}"
        );
    };
    // The tasks of the deployments are dropped, so selections say that their runtime has ended.
    check(insert(None), "the runtime has shut down");
    check(insert(Some(false)), "failed with an unexpected error");
    check(
        json!({ "name": "watch", "object": "x" }),
        "the operation watch is unknown",
    );
    check(
        json!({ "name": "insertOne", "object": "y" }),
        "there is no entity y",
    );
}

#[test]
fn a_test_whose_requirements_are_not_met_fails() {
    let check = |requirement: Value, said: &str| {
        let error = play_one(&requirement, &insert(Some(true))).unwrap_err();
        assert!(error.contains(said), "{error}");
    };
    check(
        json!({ "topologies": ["single"], "minServerVersion": "8.1" }),
        "does not meet",
    );
    check(
        json!({ "topologies": ["single"], "maxServerVersion": "7.99" }),
        "does not meet",
    );
    check(
        json!({ "topologies": ["sharded-replicaset"] }),
        "not a kind of deployment",
    );
    check(
        json!({ "topologies": ["single"], "auth": true }),
        "unknown key: auth",
    );
}
