//! The prose tests of "Connections Survive Primary Step Down".

use bson::{Document, doc};
use futures::executor::block_on;
use sdam::{Event, EventKind};
use sdam_live::{FailCommand, MemberSpec, ReplicaSet, or_skip};

use super::{Pooled, count, run};
use crate::runtime::{replica_set, version};

fn insert(document: Document) -> Document {
    let majority = doc! { "w": "majority" };
    doc! { "insert": "step-down", "documents": [document], "writeConcern": majority }
}

/// Drops the test's collection if it exists, and creates it.
fn create_collection(client: &Pooled) {
    for name in ["drop", "create"] {
        client.run(doc! { name: "step-down", "writeConcern": { "w": "majority" } });
    }
}

/// Returns the number of cleared pools and the number of created connections.
fn clears_and_connections(events: &[Event]) -> (usize, usize) {
    let clears = count(events, |kind| matches!(kind, EventKind::PoolCleared { .. }));
    let is_created = |kind: &EventKind| matches!(kind, EventKind::ConnectionCreated { .. });
    (clears, count(events, is_created))
}

/// Returns the ids of the documents in a batch.
fn ids(reply: &Document, batch: &str) -> Vec<i32> {
    let cursor = reply.get_document("cursor");
    let cursor = cursor.unwrap_or_else(|_| panic!("{reply}"));
    let batch = cursor.get_array(batch).unwrap().iter();
    batch.map(|one| one.as_document().unwrap().get_i32("_id").unwrap()).collect()
}

/// A cursor survives a step-down (I-36; "getMore Iteration").
#[test]
#[ignore = "deep: real servers"]
fn step_down_1_a_cursor_goes_on_over_its_connection_after_a_step_down() {
    let Some(set) = replica_set() else { return };
    let client = Pooled::start(&set.uri());
    create_collection(&client);
    for id in 0..5 {
        client.run(insert(doc! { "_id": id }));
    }
    let pool = client.pool();
    let mut connection = block_on(pool.check_out()).unwrap();
    let find = doc! { "find": "step-down", "batchSize": 2, "sort": { "_id": 1 } };
    let reply = run(&mut connection, find);
    assert_eq!(ids(&reply, "firstBatch"), [0, 1]);
    let cursor = reply.get_document("cursor").unwrap();
    let cursor = cursor.get_i64("id").unwrap();
    let secondary = set.member(set.secondaries()[0]);
    let unfreeze = doc! { "replSetFreeze": 0 };
    secondary.run_command("admin", unfreeze).unwrap();
    let old = set.members().find(|member| member.host() == *pool.address().as_str());
    let step_down = doc! { "replSetStepDown": 30, "force": true };
    old.unwrap().run_command("admin", step_down).unwrap();
    let more = doc! { "getMore": cursor, "collection": "step-down", "batchSize": 2 };
    assert_eq!(ids(&run(&mut connection, more), "nextBatch"), [2, 3]);
    drop(connection);
    assert_eq!(clears_and_connections(&client.finish()), (0, 1));
}

/// Only shutdown errors clear the pool (I-34, I-36): "Not Primary - Keep Connection Pool",
/// "Shutdown in progress - Reset Connection Pool", "Interrupted at shutdown - Reset Connection
/// Pool".
#[test]
#[ignore = "deep: real servers"]
fn step_down_2_to_4_only_errors_of_a_shutdown_clear_the_pool() {
    let started = ReplicaSet::start(version(), &[MemberSpec::new()]);
    let Some(set) = or_skip(started).unwrap() else {
        return;
    };
    // The next streamed reply makes the server known again.
    let uri = format!("{}&heartbeatFrequencyMS=500", set.uri());
    for (code, clears) in [(10107, 0), (91, 1), (11600, 1)] {
        let client = Pooled::start(&uri);
        create_collection(&client);
        let fail = FailCommand::new(["insert"]).times(1);
        let failing = set.member(0).fail_command(fail.error_code(code)).unwrap();
        let failed = client.run(insert(doc! { "test": 1 }));
        assert_eq!(failed.get_i32("code").unwrap(), code, "{failed}");
        let inserted = client.run(insert(doc! { "test": 1 }));
        assert_eq!(inserted.get_i32("n").unwrap(), 1, "{inserted}");
        failing.disable().unwrap();
        let events = client.finish();
        assert_eq!(clears_and_connections(&events), (clears, 1 + clears), "{code}");
    }
}
