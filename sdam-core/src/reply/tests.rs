use std::{string::ToString, vec, vec::Vec};

use bson::{Document, doc};

use super::*;

fn encode(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

#[test]
fn errors_are_found_in_every_place_of_a_reply() {
    // I-32, I-33, O-42, O-44
    let check = |reply: Document, expected: Option<(Option<i32>, &str)>| {
        let error = error(&encode(&reply), Stage::Operation);
        let found = error.as_ref().map(|error| (error.code, &*error.message));
        assert_eq!(found, expected, "{reply}");
    };
    check(doc! { "ok": 1 }, None);
    check(doc! { "ok": true, "n": 1 }, None);
    check(doc! {}, None);
    check(
        doc! { "ok": 0, "errmsg": "not master", "code": 10107 },
        Some((Some(10107), "not master")),
    );
    check(doc! { "ok": 0.0, "errmsg": "boom" }, Some((None, "boom")));
    check(doc! { "ok": "1", "errmsg": "boom" }, Some((None, "boom")));
    check(
        doc! { "ok": 0, "code": 91 },
        Some((Some(91), "the server gave no reason")),
    );
    check(
        doc! { "ok": 1, "writeConcernError": { "code": 91, "errmsg": "shutting down" } },
        Some((Some(91), "shutting down")),
    );
    check(
        doc! { "ok": 0, "code": 1, "errmsg": "no", "writeConcernError": { "code": 91 } },
        Some((Some(1), "no")),
    );
    check(
        doc! { "ok": 1, "writeErrors": [{ "index": 0, "code": 10107, "errmsg": "not master" }] },
        None,
    );
    check(
        doc! { "$err": "not master or secondary", "code": 13436 },
        Some((Some(13436), "not master or secondary")),
    );
    check(
        doc! { "ok": 1, "err": "not master", "code": 10058, "n": 0 },
        Some((Some(10058), "not master")),
    );
    check(
        doc! { "ok": 1, "err": bson::Bson::Null, "code": 10058 },
        None,
    );
}

#[test]
fn an_error_keeps_code_labels_and_topology_version_of_the_reply() {
    // C-15, I-34
    let process = bson::oid::ObjectId::from_bytes([7; 12]);
    let mut reply = doc! {
        "ok": 0,
        "errmsg": "going down",
        "code": 91_i64,
        "codeName": "ShutdownInProgress",
        "errorLabels": ["RetryableError", 3, "SystemOverloadedError"],
        "topologyVersion": { "processId": process, "counter": 4_i64 },
    };
    let error = super::error(&encode(&reply), Stage::Auth).unwrap();
    assert_eq!(
        error.to_string(),
        "command error at auth (91 ShutdownInProgress): going down"
    );
    assert_eq!(error.labels.len(), 2);
    assert!(error.has_label("SystemOverloadedError"));
    let version = error.topology_version.unwrap();
    assert_eq!((version.process_id.bytes(), version.counter), ([7; 12], 4));

    // A write concern error has labels and topology version at the top of the reply as well.
    reply.insert("ok", 1);
    reply.insert(
        "writeConcernError",
        doc! { "code": 11600, "errmsg": "interrupted" },
    );
    let error = super::error(&encode(&reply), Stage::Operation).unwrap();
    assert_eq!(
        (error.code, error.code_name.as_deref()),
        (Some(11600), None)
    );
    assert!(error.has_label("RetryableError"));
    assert_eq!(error.topology_version, Some(version));
}

#[test]
fn malformed_bytes_contain_no_error() {
    let reply = encode(&doc! { "ok": 0, "errmsg": "boom" });
    assert!(error(&reply, Stage::Operation).is_some());
    for length in 0..reply.len() {
        assert_eq!(error(&reply[..length], Stage::Operation), None, "{length}");
    }
}

#[test]
fn a_message_that_is_not_utf_8_is_kept_lossily() {
    let mut reply = encode(&doc! { "ok": 0, "errmsg": "b?d" });
    let at = reply.iter().position(|byte| *byte == b'?').unwrap();
    reply[at] = 0xff;
    let error = error(&reply, Stage::Operation).unwrap();
    assert_eq!(&*error.message, "b\u{fffd}d");
}

#[test]
fn a_reply_is_ok_if_its_ok_is_1_whatever_its_type() {
    let check = |reply: bson::Document, expected| {
        assert_eq!(is_ok(&encode(&reply)), expected, "{reply}");
    };
    check(doc! { "ok": 1 }, true);
    check(
        doc! { "ok": 1.0, "writeConcernError": { "code": 91 } },
        true,
    );
    check(doc! { "ok": true }, true);
    check(doc! { "ok": 0 }, false);
    check(doc! {}, false);
    assert!(!is_ok(&[1, 2, 3]));
}

#[test]
fn a_server_suggests_the_base_of_backoffs_with_a_positive_number() {
    // I-62
    let check = |reply: bson::Document, millis: Option<u64>| {
        let base = base_backoff(&encode(&reply));
        assert_eq!(base, millis.map(Duration::from_millis), "{reply}");
    };
    check(doc! { "ok": 0, "baseBackoffMS": 7 }, Some(7));
    check(doc! { "ok": 0, "baseBackoffMS": 7.0 }, Some(7));
    check(doc! { "ok": 0, "baseBackoffMS": 0 }, None);
    check(doc! { "ok": 0, "baseBackoffMS": -7_i64 }, None);
    check(doc! { "ok": 0, "baseBackoffMS": "7" }, None);
    check(doc! { "ok": 0 }, None);
}
