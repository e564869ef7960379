//! Tests of documents: cursors, sort order, and commands that change one document.

use bson::{Bson, Document, Uuid, doc};
use sdam_sim::ConnectionId;

use crate::support::{Fixture, code};

fn fixture() -> (Fixture, ConnectionId) {
    let mut fixture = Fixture::standalone();
    let connection = fixture.connect(0);
    let documents: Vec<_> = [2, 3, 1].map(|id| doc! { "_id": id }).into();
    let insert = doc! { "insert": "c", "documents": documents, "$db": "d" };
    fixture.call(connection, &insert);
    (fixture, connection)
}

fn ids(reply: &Document, batch: &str) -> Vec<i32> {
    let cursor = reply.get_document("cursor").unwrap();
    let batch = cursor.get_array(batch).unwrap().iter();
    batch.map(|item| item.as_document().unwrap().get_i32("_id").unwrap()).collect()
}

fn cursor_id(reply: &Document) -> i64 {
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

#[test]
fn a_cursor_returns_the_documents_in_order_batch_by_batch() {
    let (mut fixture, connection) = fixture();
    let find = doc! { "find": "c", "sort": { "_id": -1 }, "batchSize": 2, "$db": "d" };
    let reply = fixture.call(connection, &find);
    assert_eq!(ids(&reply, "firstBatch"), [3, 2]);
    let more = doc! { "getMore": cursor_id(&reply), "collection": "c", "$db": "d" };
    let reply = fixture.call(connection, &more);
    assert_eq!(ids(&reply, "nextBatch"), [1]);
    assert_eq!(cursor_id(&reply), 0);
    let reply = fixture.call(connection, &more);
    assert_eq!(code(&reply), 43);
}

#[test]
fn a_killed_cursor_is_gone() {
    let (mut fixture, connection) = fixture();
    let find = doc! { "find": "c", "batchSize": 1, "$db": "d" };
    let id = cursor_id(&fixture.call(connection, &find));
    let kill = doc! { "killCursors": "c", "cursors": [id], "$db": "d" };
    let reply = fixture.call(connection, &kill);
    assert_eq!(reply.get_array("cursorsKilled").unwrap().len(), 1);
    let reply = fixture.call(connection, &kill);
    assert_eq!(reply.get_array("cursorsNotFound").unwrap().len(), 1);
}

#[test]
fn a_condition_that_sleeps_delays_the_reply() {
    let (mut fixture, connection) = fixture();
    let find = doc! { "find": "c", "filter": { "$where": "sleep(500) || true" }, "$db": "d" };
    fixture.send(connection, &find);
    fixture.advance_millis(499);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    let reply = fixture.receive(connection);
    assert_eq!(ids(&reply.body, "firstBatch").len(), 3);
}

#[test]
fn m_47_a_retryable_write_runs_once_for_each_session_and_number() {
    let mut fixture = Fixture::replica_set(1);
    let connection = fixture.connect(0);
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "d" };
    fixture.call(connection, &insert);
    let mut increment = |session: u8, number: i64, by: Bson| {
        let update = doc! { "q": { "_id": 1 }, "u": { "$inc": { "n": by } } };
        let mut command = doc! { "update": "c", "updates": [update], "$db": "d" };
        let id = Uuid::from_bytes([session; 16]);
        command.extend(doc! { "lsid": { "id": id }, "txnNumber": number });
        fixture.call(connection, &command)
    };
    let first = increment(1, 1, 1.into());
    assert_eq!(first.get_i32("n").unwrap(), 1);
    // A statement that failed can be run again with the same transaction number.
    let failed = increment(1, 2, "ten".into());
    let errors = failed.get_array("writeErrors").unwrap();
    let error = errors[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 2);
    for _ in 0..2 {
        assert_eq!(increment(1, 2, 10.into()).get_i32("n").unwrap(), 1);
    }
    increment(2, 2, 100.into());
    assert_eq!(code(&increment(1, 1, 1000.into())), 225);
    let find = doc! { "find": "c", "filter": { "_id": 1 }, "$db": "d" };
    let reply = fixture.call(connection, &find);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch");
    let found = batch.unwrap()[0].as_document().unwrap();
    assert_eq!(found.get_i32("n").unwrap(), 111, "{found}");
}

#[test]
fn write_concerns_and_arguments_of_reads_are_checked() {
    let (mut fixture, connection) = fixture();
    for (refused, expected) in [
        (doc! { "ping": 1, "writeConcern": { "w": true } }, 14),
        (doc! { "ping": 1, "writeConcern": { "other": 1 } }, 40_415),
        (doc! { "ping": 1, "maxTimeMS": -1 }, 2),
        (doc! { "find": "c", "other": 1 }, 40_415),
    ] {
        let mut command = refused;
        command.insert("$db", "d");
        assert_eq!(code(&fixture.call(connection, &command)), expected, "{command}");
    }
}
