//! Retryable Reads and Retryable Writes.

use std::{cell::Cell, time::Duration};

use bson::doc;
use futures::future::{join, join_all};
use sdam::{Criteria, ErrorKind, client::Command};
use sdam_sim::Blueprint;

use super::{World, encoded, replica_set};

#[test]
fn a_write_concern_error_that_may_be_retried_is_the_error_in_the_end() {
    // If all attempts fail with a write concern error, the last one is returned.
    let version = sdam_sim::version::ServerVersion::V4_2;
    let world = World::start(&replica_set().version(version), "");
    let data = doc! { "failCommands": ["insert"], "writeConcernError": { "code": 91 } };
    world.fail(doc! { "times": 1 }, data.clone());
    let reply = world.insert(1).unwrap();
    assert!(!reply.contains_key("writeConcernError"), "{reply}");
    assert_eq!(world.log("insert").0.len(), 2);
    world.fail(doc! { "times": 2 }, data);
    let error = world.insert(2).unwrap_err();
    assert_eq!((error.kind(), error.code(), error.retries()), (ErrorKind::Write, Some(91), 1));
    assert!(error.has_label("RetryableWriteError"), "{error}");
    assert_eq!(error.write_concern_error().unwrap().code(), Some(91));
    assert_eq!(world.log("insert").0.len(), 2);
}

#[test]
fn commands_of_unknown_kind_and_those_without_retry_are_run_once() {
    // Generic commands, and commands marked as not retryable, are run once.
    let world = World::start(&replica_set(), "");
    let find = encoded(&doc! { "find": "c" });
    let insert = encoded(&doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    for (name, command) in [
        ("find", Command::new("test", find.as_bytes())),
        ("find", Command::read("test", find.as_bytes()).without_retry()),
        ("insert", Command::write("test", insert.as_bytes()).without_retry()),
    ] {
        let data = doc! { "failCommands": [name], "closeConnection": true };
        world.fail(doc! { "times": 1 }, data);
        let error = world.try_command(&command).unwrap_err();
        assert_eq!((error.is_network(), error.retries()), (true, 0));
        let (started, _) = world.log(name);
        assert_eq!(started.len(), 1);
        assert!(!started[0].contains_key("txnNumber"));
    }
}

#[test]
fn a_read_is_run_once_if_its_error_is_not_retryable() {
    let world = World::start(&replica_set(), "");
    let find = encoded(&doc! { "find": "c" });
    for (code, attempts) in [(2, 1), (91, 2)] {
        world.fail(doc! { "times": 1 }, doc! { "failCommands": ["find"], "errorCode": code });
        let outcome = world.try_command(&Command::read("test", find.as_bytes()));
        assert_eq!(outcome.err().and_then(|error| error.code()), (attempts == 1).then_some(code));
        assert_eq!(world.log("find").0.len(), attempts);
    }
}

#[test]
fn writes_that_cannot_be_repeated_have_no_number_and_are_run_once() {
    // A server refuses the number of writes of several documents, so an update would be lost.
    let world = World::start(&replica_set(), "");
    world.insert(1).unwrap();
    world.log("insert");
    let all = doc! { "q": {}, "u": { "$set": { "x": 1 } }, "multi": true };
    let update = encoded(&doc! { "update": "c", "updates": [all] });
    let update = Command::write("test", update.as_bytes());
    let reply = world.try_command(&update).unwrap();
    assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply}");
    let data = doc! { "failCommands": ["update"], "closeConnection": true };
    world.fail(doc! { "times": 1 }, data);
    assert_eq!(world.try_command(&update).unwrap_err().retries(), 0);
    let (started, _) = world.log("update");
    assert_eq!(started.len(), 2);
    assert!(started.iter().all(|own| own.contains_key("lsid") && !own.contains_key("txnNumber")));
}

#[test]
fn the_next_batch_of_a_cursor_and_reads_of_a_transaction_are_asked_for_once() {
    // A lost batch of a cursor cannot be read again.
    let world = World::start(&replica_set(), "");
    let transaction = doc! {
        "find": "c", "lsid": { "id": 1 }, "txnNumber": 1_i64, "autocommit": false,
    };
    for command in [doc! { "getMore": 1_i64, "collection": "c" }, transaction] {
        let name = command.keys().next().unwrap();
        let data = doc! { "failCommands": [name], "closeConnection": true };
        world.fail(doc! { "times": 1 }, data);
        let command = encoded(&command);
        let error = world.try_command(&Command::read("test", command.as_bytes())).unwrap_err();
        assert_eq!((error.is_network(), error.retries()), (true, 0), "{error}");
    }
}

#[test]
fn a_write_with_a_session_of_its_own_is_repeated_with_its_number() {
    // The session and the number of the caller are sent once, in both attempts.
    let world = World::start(&replica_set(), "");
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let session = doc! { "id": id };
    let insert = doc! {
        "insert": "c", "documents": [{ "_id": 1 }], "lsid": &session, "txnNumber": 5_i64,
    };
    let insert = encoded(&insert);
    let data = doc! { "failCommands": ["insert"], "closeConnection": true };
    world.fail(doc! { "times": 1 }, data);
    world.try_command(&Command::write("test", insert.as_bytes())).unwrap();
    let (started, _) = world.log("insert");
    assert_eq!(started.len(), 2);
    for own in started {
        let keys = |name: &str| own.keys().filter(|key| *key == name).count();
        assert_eq!((keys("lsid"), keys("txnNumber")), (1, 1), "{own}");
        assert_eq!(own.get_document("lsid").unwrap(), &session);
        assert_eq!(own.get_i64("txnNumber").unwrap(), 5);
    }
}

#[test]
fn a_standalone_gets_no_transaction_numbers_and_writes_are_not_retried() {
    // On a standalone, writes have no transaction number and are not retried.
    let world = World::start(&Blueprint::standalone(), "");
    let data = doc! { "failCommands": ["insert"], "closeConnection": true };
    world.fail(doc! { "times": 1 }, data);
    assert_eq!(world.insert(1).unwrap_err().retries(), 0);
    let (started, _) = world.log("insert");
    assert!(!started[0].contains_key("txnNumber"), "{:?}", started[0]);
}

/// Twenty tasks write concurrently during a step-down and the failure of a primary: each document
/// exists exactly once.
#[test]
fn concurrent_writes_go_on_through_failovers_and_none_is_lost_or_doubled() {
    // No acknowledged write is lost or run twice.
    for seed in 0..20 {
        let world = World::with_seed(seed, &replica_set(), "maxPoolSize=4");
        let (next, done) = (Cell::new(0), Cell::new(false));
        let write = async || {
            while !done.get() {
                let insert = doc! { "insert": "c", "documents": [{ "_id": next.get() }] };
                next.set(next.get() + 1);
                let insert = encoded(&insert);
                let insert = Command::write("test", insert.as_bytes());
                let reply = world.client.run(&insert).await;
                reply.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
        };
        let disturb = async {
            let wait = async |millis| {
                let clock = world.sim.runtime().backend.clock;
                let time = world.sim.now() + Duration::from_millis(millis);
                clock.sleep_until(time).await;
            };
            let next_primary = async || {
                wait(20 + seed).await;
                let criteria = Criteria::write();
                let primary = world.client.topology().select(&criteria).await;
                primary.unwrap().address().clone()
            };
            next_primary().await;
            world.sim.step_down().unwrap();
            let primary = next_primary().await;
            wait(20).await;
            let members = world.sim.status().members;
            let primary = members.iter().find(|member| member.address == primary);
            world.sim.kill(primary.unwrap().id).unwrap();
            next_primary().await;
            wait(20).await;
            done.set(true);
        };
        world.run(join(join_all((0..20).map(|_| write())), disturb));
        let count = encoded(&doc! { "count": "c" });
        let count = world.try_command(&Command::read("test", count.as_bytes()));
        assert_eq!(count.unwrap().get_i32("n").unwrap(), next.get(), "seed {seed}");
    }
}

#[test]
fn in_a_sharded_cluster_a_retry_avoids_the_mongos_that_failed() {
    // A retry prefers a mongos other than the one that failed (L-26, Q-6).
    let world = World::start(&Blueprint::sharded(2), "");
    let find = encoded(&doc! { "find": "c" });
    let read = Command::read("test", find.as_bytes());
    // One of the two mongoses has the fail point, which closes the connection each time.
    let data = doc! { "failCommands": ["find"], "closeConnection": true };
    world.fail(doc! { "times": 1000 }, data);
    for _ in 0..20 {
        world.try_command(&read).unwrap();
    }
    let (started, _) = world.log("find");
    assert!(started.len() > 20, "no find was retried");
}

#[test]
fn behind_a_load_balancer_writes_are_retried_on_another_connection() {
    // Behind a load balancer, a retry uses another connection.
    let world = World::start(&Blueprint::load_balanced(1), "");
    for id in 0..10 {
        world.insert(id).unwrap();
    }
    let (started, names) = world.log("insert");
    assert!(started.iter().all(|insert| insert.contains_key("txnNumber")));
    assert_eq!(names.len(), 20);
    let data = doc! { "failCommands": ["insert"], "closeConnection": true };
    world.fail(doc! { "times": 1 }, data);
    for id in 10..20 {
        world.insert(id).unwrap();
    }
}
