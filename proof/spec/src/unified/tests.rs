//! Tests that the runner reports differences and unsupported content.

use std::sync::Arc;

use bson::doc;
use futures::future::BoxFuture;
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    event::{Event, EventKind},
    ids::{Generation, ObjectId, ServerId},
    pool::PoolClear,
    time::Instant,
};
use sdam_events::log::Severity;
use sdam_testkit::{DroppedTasks, ManualClock, Server, Servers};
use sdam_transport::runtime::{Backend, Runtime};
use serde_json::json;

use super::{
    event::{ExpectedEvent, ExpectedEvents},
    log::{ExpectedLog, Message},
    matching::Expected,
    operation::{ExpectedError, Failure},
    *,
};
use crate::{
    fields::read,
    host::{Host, TestDeployment},
    requirement::Kind,
    run::Coverage,
};

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
    check(json!({ "a": { "$$type": ["int", "long"] } }), json!({ "a": 1 }));
    check(json!({ "a": { "$$type": "double" } }), json!({ "a": 1.5 }));
    check(json!({ "a": [{ "b": "c" }, true] }), json!({ "a": [{ "b": "c" }, true] }));
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
    check(json!({ "a": { "b": 1 } }), json!({ "a": { "b": 1, "c": 1 } }), ".a.c is not expected");
    check(json!({ "a": [1] }), json!({ "a": [2] }), ".a[0] is 2, expected 1");
    check(json!({ "a": [1] }), json!({ "a": [1, 1] }), ".a is [1,1], expected [1]");
    for (operator, actual, shown) in [
        (json!({ "$$exists": true }), json!({}), "absent"),
        (json!({ "$$exists": false }), json!({ "a": 1 }), "1"),
        (json!({ "$$type": "string" }), json!({ "a": 1 }), "1"),
        (json!({ "$$lte": 0.5 }), json!({ "a": 1 }), "1"),
        (json!({ "$$sessionLsid": "b" }), json!({ "a": 1 }), "1"),
        (json!({ "$$type": ["int"] }), json!({}), "absent"),
        (json!({ "$$matchAsDocument": {} }), json!({ "a": "1" }), "\"1\""),
    ] {
        let error = format!(".a is {shown}, expected {operator}");
        check(json!({ "a": operator }), actual, &error);
    }
    let document = json!({ "a": { "$$matchAsDocument": { "ok": 1 } } });
    let more = json!({ "a": r#"{"ok":1,"more":1}"# });
    check(document, more, ".a.more is not expected");
    let unknown = json!({ "a": { "$$matchesEntity": "b" } });
    let error = "a: unknown variant `$$matchesEntity`, expected one of `$$exists`, `$$lte`, \
                 `$$matchAsDocument`, `$$matchAsRoot`, `$$sessionLsid`, `$$type`, \
                 `$$unsetOrMatches`";
    check(unknown, json!({}), error);
}

fn logs(messages: &[&str]) -> Vec<Message> {
    let message = |text: &&str| Message {
        level: Severity::Debug,
        component: "topology".to_owned(),
        data: json!({ "message": text, "x": 1 }),
    };
    messages.iter().map(message).collect()
}

fn expected(messages: &[&str], more: &Value) -> Value {
    let message = |text: &&str| json!({ "level": "debug", "component": "topology", "data": { "message": text } });
    let mut expected = json!({ "client": "c" });
    expected["messages"] = messages.iter().map(message).collect();
    let more = more.as_object().cloned().unwrap_or_default();
    expected.as_object_mut().unwrap().extend(more);
    expected
}

fn compare(expected: &Value, logs: &[Message]) -> Result<(), String> {
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
    check(&["a", "b", "c"], json!({ "ignoreExtraMessages": true }), true);
    check(&["a", "c", "b"], json!({ "ignoreExtraMessages": true }), false);
    let ignored = json!({ "level": "debug", "component": "topology", "data": { "message": "c" } });
    let ignore = json!({ "ignoreMessages": [ignored] });
    check(&["c", "a", "c", "b"], ignore.clone(), true);
    check(&["c", "a", "c", "b", "d"], ignore, false);
}

#[test]
fn messages_of_another_level_or_component_do_not_match() {
    for (key, value) in [("level", "info"), ("component", "serverSelection")] {
        let mut expected = expected(&["a"], &json!({}));
        expected["messages"][0][key] = value.into();
        assert!(compare(&expected, &logs(&["a"])).is_err(), "{key}");
    }
}

const SINGLE: Environment =
    Environment { kind: Kind::Single, release: [8, 0, 5], authentication: false };

/// Creates a host without deployments. It suffices for tests of errors that occur before a
/// deployment starts.
fn host() -> Host {
    let block_on = |future: BoxFuture<'_, ()>| futures::executor::block_on(future);
    let deploy = move |_: &Environment| {
        let clock = ManualClock::default();
        let servers = Servers::new(clock.clone(), Server::silent());
        let backend = Backend::new(Arc::new(clock), Arc::new(servers), 1);
        let runtime = Runtime::new(backend, Arc::new(DroppedTasks));
        Ok(TestDeployment::new("mongodb://a/", None, runtime, block_on, ()))
    };
    Host { deploy: Box::new(deploy), ..Host::new(Arc::new(DroppedTasks), block_on) }
}

/// Runs a file on the host, and returns the environment of each run.
fn run(file: &Value) -> Result<Vec<Environment>, String> {
    let offer = Offer { environments: vec![SINGLE], coverage: Coverage::Every };
    let run = |run: Run| run.on(&host()).map(|()| SINGLE);
    runs(&offer, file)?.into_iter().map(run).collect()
}

/// Returns a file with one test that performs `operation`.
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
    let ran = run(&file(&insert(Some(true))));
    assert_eq!(ran, Ok(vec![SINGLE]));
    let check = |operation: Value, expected: &str| {
        let error = run(&file(&operation)).unwrap_err();
        assert!(
            error.starts_with("[single 8.0] test: insertOne: ") && error.contains(expected),
            "{error}"
        );
    };
    // The tasks are dropped with their deployment, so selections report that the runtime has ended.
    check(insert(None), "the runtime has shut down");
    check(insert(Some(false)), "isClientError does not hold of the error");
    let mut elsewhere = insert(None);
    elsewhere["object"] = json!("y");
    check(elsewhere, "there is no entity y");
}

#[test]
fn a_test_whose_requirements_are_not_met_fails() {
    for (key, value) in [
        ("minServerVersion", json!("8.0.6")),
        ("maxServerVersion", json!("7.99")),
        ("topologies", json!(["replicaset", "sharded"])),
        ("auth", json!(true)),
        ("serverParameters", json!({ "requireApiVersion": true })),
    ] {
        let mut file = file(&insert(Some(true)));
        file["tests"][0]["runOnRequirements"] = json!([{ key: value }]);
        let error = run(&file).unwrap_err();
        assert_eq!(error, "test: no environment meets the requirements", "{key}");
    }
}

/// Each case consists of a string in the file, its replacement and the resulting error.
#[test]
fn unsupported_content_is_refused_with_its_test_and_field() {
    for case in [
        "1.14 -> 2.0 -> schemaVersion is [2, 0, 0], expected 1",
        "createEntities -> testsOfOthers -> testsOfOthers: unknown field",
        "topologies -> csfle -> runOnRequirements[0].csfle: unknown field",
        "single -> ring -> runOnRequirements[0].topologies[0]: unknown variant `ring`",
        "client -> stream -> createEntities[0]: unknown variant `stream`",
        "uriOptions -> autoEncryptOpts -> createEntities[0].client.autoEncryptOpts: unknown field",
        "serverHeartbeatFailedEvent -> x -> createEntities[0].client.observeEvents[0]: x is not",
        r#"expectLogMessages -> expectSpans -> tests: "test": expectSpans: unknown field"#,
        r#"isClientError -> errorResponse -> tests: "test": operations[0].expectError.errorResponse: u"#,
        r#"insertOne -> watch -> tests: "test": operations[0]: watch: watch is not a"#,
        r#""document" -> "filter" -> tests: "test": operations[0]: insertOne: unknown argument filter"#,
        r#"object":"x" -> object":"testRunner" -> tests: "test": operations[0]: unknown variant"#,
    ] {
        let [supported, other, expected] = *case.split(" -> ").collect::<Vec<_>>() else {
            panic!("{case}");
        };
        let file = file(&insert(Some(true))).to_string();
        let file = file.replacen(supported, other, 1).parse().unwrap();
        let error = run(&file).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

fn published(kinds: Vec<EventKind>) -> Vec<Event> {
    let event = |(seq, kind)| Event::new(seq, Instant::EPOCH, ObjectId::default(), kind);
    (1..).zip(kinds).map(event).collect()
}

/// Returns the events of a client with a pool that became ready and was then cleared.
fn pool_events() -> Vec<Event> {
    let (server, address) = (ServerId::from_u64(1), ServerAddress::new("a", 1));
    let cause = Error::new(ErrorKind::Timeout, Stage::Hello, "late");
    let mut clear = PoolClear::new(Generation::FIRST, cause);
    clear.interrupt_in_use = true;
    let ready = EventKind::PoolReady { server, address: address.clone() };
    let cleared = EventKind::PoolCleared { server, address, clear };
    published(vec![EventKind::TopologyOpening, ready, cleared])
}

#[test]
fn events_of_one_family_are_compared_in_order_and_with_their_fields() {
    let check = |events: Value, more: bool, error: Option<&str>| {
        let expected = json!({
            "client": "c", "eventType": "cmap", "events": events, "ignoreExtraEvents": more,
        });
        let expected = read::<ExpectedEvents>(&expected).unwrap();
        let result = expected.compare(&pool_events());
        match (error, &result) {
            (None, result) => assert_eq!(*result, Ok(())),
            (Some(error), Err(actual)) => assert!(actual.contains(error), "{actual}"),
            (Some(error), Ok(())) => panic!("{error}"),
        }
    };
    let ready = json!({ "poolReadyEvent": {} });
    let cleared = |interrupts: bool| json!({ "poolClearedEvent": { "interruptInUseConnections": interrupts } });
    check(json!([ready, cleared(true)]), false, None);
    check(json!([ready]), true, None);
    check(json!([ready]), false, Some("c: unexpected event: PoolCleared"));
    check(json!([cleared(true), ready]), false, Some("event 1 is PoolReady"));
    let differs = "event 2 (PoolCleared).interruptInUseConnections is true, expected false";
    check(json!([ready, cleared(false)]), false, Some(differs));
    check(json!([ready, cleared(true), ready]), false, Some("event 3 is missing"));
    check(json!([]), false, Some("unexpected event"));
}

#[test]
fn an_expected_event_with_a_field_that_it_cannot_have_is_refused() {
    let event = json!({ "poolReadyEvent": { "reason": "stale" } });
    let error = read::<ExpectedEvent>(&event).unwrap_err();
    assert_eq!(error, "PoolReady has no field reason");
}

#[test]
fn every_condition_of_an_expected_error_is_checked() {
    let reply = doc! { "ok": 1, "writeConcernError": { "code": 64, "errmsg": "late" } };
    let error = Error::new(ErrorKind::Write, Stage::Operation, "Not Primary")
        .with_code(50)
        .with_code_name("MaxTimeMSExpired")
        .with_label("RetryableError")
        .with_reply(reply.to_vec().unwrap());
    let failure = Failure { error, result: json!({ "deletedCount": 1 }) };
    let check = |key: &str, value: Value, passes: bool| {
        let expected = read::<ExpectedError>(&json!({ key: value })).unwrap();
        assert_eq!(expected.compare(&failure).is_ok(), passes, "{key}");
    };
    check("isError", json!(true), true);
    check("isClientError", json!(false), true);
    check("isClientError", json!(true), false);
    check("errorContains", json!("not primary"), true);
    check("errorContains", json!("closed"), false);
    check("errorCode", json!(50), true);
    check("errorCode", json!(18), false);
    check("errorCodeName", json!("MaxTimeMSExpired"), true);
    check("errorCodeName", json!("HostUnreachable"), false);
    check("errorLabelsContain", json!(["RetryableError"]), true);
    check("errorLabelsContain", json!(["SystemOverloadedError"]), false);
    check("errorLabelsOmit", json!(["SystemOverloadedError"]), true);
    check("errorLabelsOmit", json!(["RetryableError"]), false);
    check("isTimeoutError", json!(true), true);
    check("isTimeoutError", json!(false), false);
    let concern = |code: i32| json!([{ "code": code, "message": "late" }]);
    check("writeConcernErrors", concern(64), true);
    check("writeConcernErrors", concern(91), false);
    check("expectResult", json!({ "deletedCount": 1 }), true);
    check("expectResult", json!({ "deletedCount": 2 }), false);
}

#[test]
fn tests_do_not_run_on_releases_that_cannot_do_what_they_need() {
    let on = |release| Environment { release, ..SINGLE };
    let fail_point = |data: Document| doc! { "configureFailPoint": "failCommand", "data": data };
    let hello = fail_point(doc! { "failCommands": ["isMaster", "hello"], "appName": "a" });
    assert!(!on([4, 4, 6]).applies(&hello));
    assert!(on([4, 4, 7]).applies(&hello));
    let find = fail_point(doc! { "failCommands": ["find"], "appName": "a" });
    assert!(on([4, 2, 6]).applies(&find));
    for (release, knows) in
        [([4, 2, 9], false), ([4, 2, 10], true), ([4, 4, 1], false), ([4, 4, 2], true)]
    {
        assert_eq!(on(release).knows_hello(), knows, "{release:?}");
    }
}

#[test]
fn real_servers_leave_out_tests_that_they_do_not_admit() {
    let mut file = file(&insert(Some(true)));
    file["runOnRequirements"][0]["topologies"] = json!(["sharded"]);
    let offer = |coverage| Offer { environments: vec![SINGLE], coverage };
    assert!(runs(&offer(Coverage::Real), &file).unwrap().is_empty());
    assert!(runs(&offer(Coverage::Every), &file).is_err());
}

/// Other reasons are tested with the official files: `cargo xtask spec-test` compares the number of
/// files that stand in for a driver.
#[test]
fn files_with_sessions_and_transactions_stand_in_for_a_driver() {
    let find = |arguments: Value| json!({ "name": "find", "object": "x", "arguments": arguments });
    for (operation, expected) in [
        (find(json!({ "filter": { "name": "find" } })), false),
        (find(json!({ "filter": {}, "session": "s" })), true),
        (json!({ "name": "startTransaction", "object": "s" }), true),
    ] {
        assert_eq!(stands_in(&file(&operation)), expected, "{operation}");
    }
}
