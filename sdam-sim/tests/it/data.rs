//! Documents: cursors, order, and commands that change one document.

use bson::{Document, doc};
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
    batch
        .map(|item| item.as_document().unwrap().get_i32("_id").unwrap())
        .collect()
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
fn find_and_modify_returns_the_document_of_before() {
    let (mut fixture, connection) = fixture();
    let modify = |change: Document| {
        let mut command = doc! { "findAndModify": "c", "query": { "_id": 2 } };
        command.extend(change);
        command.insert("$db", "d");
        command
    };
    let update = modify(doc! { "update": { "$set": { "x": 1 } } });
    let reply = fixture.call(connection, &update);
    assert_eq!(*reply.get_document("value").unwrap(), doc! { "_id": 2 });
    let reply = fixture.call(connection, &modify(doc! { "remove": true }));
    assert_eq!(
        *reply.get_document("value").unwrap(),
        doc! { "_id": 2, "x": 1 }
    );
    let distinct = doc! { "distinct": "c", "key": "_id", "$db": "d" };
    let reply = fixture.call(connection, &distinct);
    assert_eq!(reply.get_array("values").unwrap().len(), 2);
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
