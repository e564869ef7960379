//! Retryable Reads and Retryable Writes.

use std::{cell::Cell, time::Duration};

use bson::{Document, doc};
use futures::future::{join, join_all};
use sdam::{Criteria, ServerAddress, client::Command};
use sdam_sim::Blueprint;

use super::{World, encoded, replica_set};

#[test]
fn a_write_concern_error_that_may_be_retried_is_returned_in_the_reply_in_the_end() {
    // If all attempts fail with a write concern error, the reply is returned.
    let version = sdam_sim::version::ServerVersion::V4_2;
    let world = World::start(&replica_set().version(version), "");
    let data = doc! { "failCommands": ["insert"], "writeConcernError": { "code": 91 } };
    world.fail(doc! { "times": 1 }, data.clone());
    let reply = world.insert(1).unwrap();
    assert!(!reply.contains_key("writeConcernError"), "{reply}");
    assert_eq!(world.log("insert").0.len(), 2);
    world.fail(doc! { "times": 2 }, data);
    let reply = world.insert(2).unwrap();
    assert!(reply.contains_key("writeConcernError"), "{reply}");
    assert_eq!(world.log("insert").0.len(), 2);
}

#[test]
fn commands_of_unknown_kind_and_those_without_retry_are_run_once() {
    // Generic commands, and commands marked as not retryable, are run once, without a session
    //
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
        assert!(!started[0].contains_key("lsid"));
    }
}

#[test]
fn a_standalone_gets_no_transaction_numbers_and_writes_are_not_retried() {
    // On a standalone, writes have no transaction number and are not retried.
    let world = World::start(&Blueprint::standalone(ServerAddress::new("a", 27017)), "");
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
                let reply = reply.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let reply = Document::from_reader(reply.body()).unwrap();
                assert!(!reply.contains_key("writeErrors"), "seed {seed}: {reply}");
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
    let hosts = ["a", "b"].map(|host| ServerAddress::new(host, 27017));
    let world = World::start(&Blueprint::sharded(hosts), "");
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
    let balancer = ServerAddress::new("a", 27017);
    let world = World::start(&Blueprint::load_balanced([balancer]), "");
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
