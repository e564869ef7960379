use std::{vec, vec::Vec};

use bson::{Document, doc};

use super::*;

fn encode(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

#[test]
fn only_a_reply_whose_ok_is_1_is_a_success_o_50() {
    let check = |reply: Document, expected: Result<Option<i32>, (ErrorKind, Option<i32>)>| {
        let outcome = match super::check(&encode(&reply), Stage::Operation) {
            Ok(error) => Ok(error.and_then(|error| error.code())),
            Err(error) => Err((error.kind(), error.code())),
        };
        assert_eq!(outcome, expected, "{reply}");
    };
    let failed = |code| Err((ErrorKind::Command, code));
    let unreadable = Err((ErrorKind::Protocol, None));
    check(doc! { "ok": 1 }, Ok(None));
    check(doc! { "ok": 1, "writeErrors": [{ "code": 9 }] }, Ok(None));
    check(doc! { "ok": 1, "writeConcernError": { "code": 91 } }, Ok(Some(91)));
    check(doc! { "ok": 1, "err": "not master", "code": 10058 }, Ok(Some(10058)));
    check(doc! { "ok": 0, "code": 9 }, failed(Some(9)));
    check(doc! { "ok": 2 }, failed(None));
    check(doc! { "ok": "1" }, failed(None));
    check(doc! { "ok": bson::Bson::Null }, failed(None));
    check(doc! { "$err": "no", "code": 13436 }, failed(Some(13436)));
    check(doc! { "ok": 1, "$err": "no", "code": 9 }, failed(Some(9)));
    check(doc! {}, unreadable);
    check(doc! { "n": 1 }, unreadable);
    check(doc! { "OK": 1 }, unreadable);
    check(doc! { "writeConcernError": { "code": 91 } }, unreadable);
    check(doc! { "err": "not master", "code": 10058 }, unreadable);
    check(doc! { "$err": 1 }, unreadable);
}

#[test]
fn bytes_that_are_no_document_are_a_protocol_error_o_50() {
    let reply = encode(&doc! { "ok": 1, "n": 1 });
    assert_eq!(check(&reply, Stage::Operation), Ok(None));
    for length in 0..reply.len() {
        let error = check(&reply[..length], Stage::Auth).unwrap_err();
        let found = (error.kind(), error.stage());
        assert_eq!(found, (ErrorKind::Protocol, Stage::Auth), "{length}");
    }
}

#[test]
fn errors_of_single_writes_have_their_index_code_and_message() {
    let reply = doc! { "ok": 1, "n": 1, "writeErrors": [
        { "index": 2, "code": 11000, "errmsg": "duplicate key", "keyValue": { "x": 1 } },
        3,
        { "index": -1, "code": 1 },
        { "code": 1 },
        { "index": 7_i64 },
    ] };
    let errors = write_errors(&encode(&reply));
    let found: Vec<_> =
        errors.iter().map(|error| (error.index, error.code, &*error.message)).collect();
    let expected = [(2, Some(11000), "duplicate key"), (7, None, "the server gave no reason")];
    assert_eq!(found, expected);
    for other in [doc! { "ok": 1 }, doc! { "writeErrors": 1 }] {
        assert_eq!(write_errors(&encode(&other)), []);
    }
    assert_eq!(write_errors(b"no document"), []);
}

#[test]
fn failed_results_of_a_bulk_write_are_errors_of_single_writes() {
    let results = [doc! { "ok": 1, "idx": 0 }, doc! { "ok": 0, "idx": 1, "code": 11000 }];
    let cursor = doc! { "id": 0_i64, "firstBatch": results.to_vec() };
    let reply = doc! { "ok": 1, "cursor": cursor.clone(), "nErrors": 1 };
    let found = write_errors(&encode(&reply));
    assert_eq!((found.len(), found[0].index, found[0].code), (1, 1, Some(11000)));
    // The documents that a find returns may look like the results of a `bulkWrite`.
    assert_eq!(write_errors(&encode(&doc! { "ok": 1, "cursor": cursor })), []);
}

#[test]
fn a_message_that_is_not_utf_8_is_kept_lossily() {
    let mut reply = encode(&doc! { "ok": 0, "errmsg": "b?d" });
    let at = reply.iter().position(|byte| *byte == b'?').unwrap();
    reply[at] = 0xff;
    let error = error(&reply, Stage::Operation).unwrap();
    assert_eq!(error.message(), "b\u{fffd}d");
}

#[test]
fn a_reply_is_ok_if_its_ok_is_1_whatever_its_type() {
    let check = |reply: bson::Document, expected| {
        assert_eq!(is_ok(&encode(&reply)), expected, "{reply}");
    };
    check(doc! { "ok": 1 }, true);
    check(doc! { "ok": 1.0, "writeConcernError": { "code": 91 } }, true);
    check(doc! { "ok": true }, true);
    check(doc! { "ok": 0 }, false);
    check(doc! {}, false);
    assert!(!is_ok(&[1, 2, 3]));
}

#[test]
fn a_suggested_base_of_backoffs_counts_if_it_is_a_positive_integer() {
    let check = |reply: Document, expected: Option<u64>| {
        let expected = expected.map(Duration::from_millis);
        assert_eq!(base_backoff(&encode(&reply)), expected, "{reply}");
    };
    check(doc! { "ok": 0, "baseBackoffMS": 1 }, Some(1));
    check(doc! { "ok": 0, "baseBackoffMS": 250_i64 }, Some(250));
    check(doc! { "ok": 0, "baseBackoffMS": 0 }, None);
    check(doc! { "ok": 0, "baseBackoffMS": -1 }, None);
    check(doc! { "ok": 0 }, None);
}
