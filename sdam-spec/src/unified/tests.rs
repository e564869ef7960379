//! Tests of the runner: differences and unknown content must be reported.

use std::sync::Arc;

use sdam_events::log::Severity;
use sdam_testkit::{DroppedTasks, ManualClock, Server, Servers};
use sdam_transport::Io;
use serde_json::json;

use super::{
    log::{ExpectedLog, Logs, Message},
    matching::Expected,
    *,
};
use crate::fields::read;

fn matching(expected: &Value, actual: &Value) -> Result<(), String> {
    read::<Expected>(expected)?.compare(actual)
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
    for (operator, actual, shown) in [
        (json!({ "$$exists": true }), json!({}), "absent"),
        (json!({ "$$exists": false }), json!({ "a": 1 }), "1"),
        (json!({ "$$type": "string" }), json!({ "a": 1 }), "1"),
        (json!({ "$$type": ["int"] }), json!({}), "absent"),
        (
            json!({ "$$matchAsDocument": {} }),
            json!({ "a": "1" }),
            "\"1\"",
        ),
    ] {
        let error = format!(".a is {shown}, expected {operator}");
        check(json!({ "a": operator }), actual, &error);
    }
    let document = json!({ "a": { "$$matchAsDocument": { "ok": 1 } } });
    let more = json!({ "a": r#"{"ok":1,"more":1}"# });
    check(document, more, ".a.more is not expected");
    let unknown = json!({ "a": { "$$sessionLsid": "b" } });
    let error = "a: unknown variant `$$sessionLsid`, expected one of `$$exists`, \
                 `$$matchAsDocument`, `$$matchAsRoot`, `$$type`";
    check(unknown, json!({}), error);
}

fn logs(messages: &[&str]) -> Logs {
    let message = |text: &&str| Message {
        level: Severity::Debug,
        component: "topology",
        data: json!({ "message": text, "x": 1 }),
    };
    Logs::from([("c".to_owned(), messages.iter().map(message).collect())])
}

fn expected(messages: &[&str], more: &Value) -> Value {
    let message = |text: &&str| json!({ "level": "debug", "component": "topology", "data": { "message": text } });
    let mut expected = json!({ "client": "c" });
    expected["messages"] = messages.iter().map(message).collect();
    let more = more.as_object().cloned().unwrap_or_default();
    expected.as_object_mut().unwrap().extend(more);
    expected
}

fn compare(expected: &Value, logs: &Logs) -> Result<(), String> {
    read::<ExpectedLog>(expected)?.compare(logs)
}

#[test]
fn messages_are_compared_in_order_without_gaps() {
    let check = |messages: &[&str], more: Value, passes: bool| {
        let expected = expected(&["a", "b"], &more);
        let result = compare(&expected, &logs(messages));
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
        expected["messages"][0][key] = value.into();
        assert!(compare(&expected, &logs(&["a"])).is_err(), "{key}");
    };
    assert!(compare(&expected(&["a"], &json!({})), &logs(&["a"])).is_ok());
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

/// Returns a file with one test, which performs `operation`.
fn file(operation: &Value) -> Value {
    let client = json!({ "client": {
        "id": "c", "observeEvents": ["serverHeartbeatFailedEvent"],
        "observeLogMessages": { "serverSelection": "debug" },
        "uriOptions": { "serverSelectionTimeoutMS": 0 },
    } });
    json!({
        "description": "file",
        "schemaVersion": "1.14",
        "runOnRequirements": [{ "topologies": ["single"] }],
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
    })
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
    assert_eq!(logging(&host(), &file(&insert(Some(true)))), Ok(()));
    let check = |operation: Value, expected: &str| {
        let error = logging(&host(), &file(&operation)).unwrap_err();
        assert!(
            error.starts_with("test: insertOne: ") && error.contains(expected),
            "{error}"
        );
    };
    // The tasks of the deployments are dropped, so selections say that their runtime has ended.
    check(insert(None), "the runtime has shut down");
    check(insert(Some(false)), "failed with an unexpected error");
    let mut elsewhere = insert(None);
    elsewhere["object"] = json!("y");
    check(elsewhere, "there is no entity y");
}

#[test]
fn a_test_whose_requirements_are_not_met_fails() {
    for (key, version) in [("minServerVersion", "8.1"), ("maxServerVersion", "7.99")] {
        let mut file = file(&insert(Some(true)));
        file["tests"][0]["runOnRequirements"] = json!([{ key: version }]);
        let error = logging(&host(), &file).unwrap_err();
        let expected = "Single of release (8, 0) does not meet ";
        assert!(error.contains(expected), "{error}");
    }
}

/// Each case is a text of the file, its replacement and the resulting error.
#[test]
fn unsupported_content_is_refused_with_its_test_and_field() {
    for case in [
        "1.14 -> 2.0 -> schemaVersion is (2, 0), expected 1",
        "createEntities -> initialData -> initialData: unknown field",
        "topologies -> auth -> runOnRequirements[0].auth: unknown field",
        "single -> ring -> runOnRequirements[0].topologies[0]: unknown variant `ring`",
        "client -> session -> createEntities[0]: unknown variant `session`",
        "uriOptions -> serverApi -> createEntities[0].client.serverApi: unknown field",
        "serverHeartbeatFailedEvent -> x -> createEntities[0].client.observeEvents[0]: x is not",
        r#"expectLogMessages -> outcome -> tests: "test": outcome: unknown field"#,
        r#"isClientError -> isError -> tests: "test": operations[0].expectError.isError: unknown"#,
        r#"insertOne -> watch -> tests: "test": operations[0]: unknown variant `watch`"#,
        r#""document" -> "filter" -> tests: "test": operations[0]: insertOne.filter: unknown"#,
        r#"object":"x" -> object":"testRunner" -> tests: "test": operations[0]: insertOne is not"#,
    ] {
        let [supported, other, expected] = *case.split(" -> ").collect::<Vec<_>>() else {
            panic!("{case}");
        };
        let file = file(&insert(Some(true))).to_string();
        let file = file.replacen(supported, other, 1).parse().unwrap();
        let error = logging(&host(), &file).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}
