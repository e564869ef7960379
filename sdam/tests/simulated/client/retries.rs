//! Retryable Reads, Retryable Writes and Client Backpressure.

use std::cell::Cell;

use futures::future::{join, join_all};

use super::*;

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
fn writes_that_cannot_be_repeated_have_no_number_and_are_run_once() {
    // A server refuses a transaction number in a write of several documents, so a write with a
    // number would be lost.
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

/// A number of operations so large that some jitters are close to 0 and some to 1.
const OPERATIONS: i32 = 400;

/// The maximum total duration of an operation's round trips.
const ROUND_TRIPS: Duration = Duration::from_millis(10);

/// The amount by which the longest observed backoffs may fall short of the maximum, because even
/// the largest jitter is slightly less than 1.
const LACKING: Duration = Duration::from_millis(60);

/// Returns the data of a fail point that refuses commands because of overload.
fn refusal(command: &str, code: i32) -> Document {
    doc! {
        "failCommands": [command],
        "errorCode": code,
        "errorLabels": ["SystemOverloadedError", "RetryableError"],
    }
}

/// Returns the shortest and the longest duration of a refused insert. So many inserts are made that
/// some jitters are close to 0 and some to 1.
fn shortest_and_longest(world: &World, code: i32) -> (Duration, Duration) {
    let times = (0..OPERATIONS).map(|id| {
        let before = world.sim.now();
        let error = world.insert(id).unwrap_err();
        assert_eq!((error.code(), error.retries()), (Some(code), 2));
        world.sim.now().since(before)
    });
    let times: Vec<_> = times.collect();
    (*times.iter().min().unwrap(), *times.iter().max().unwrap())
}

/// I-62, Q-22, Client Backpressure prose tests 1 and 5: with a jitter of 0 there is no backoff;
/// with a jitter of 1 the two backoffs take 0.6 s in total, unless the server sets their base.
#[test]
fn backpressure_1_5_backoffs_are_exponential_and_random_with_the_base_that_the_server_names() {
    let world = World::start(&replica_set(), "");
    for (code, base, expected) in [(2, None, 600), (462, Some(50), 300), (462, Some(0), 600)] {
        if let Some(base) = base {
            let set = encoded(&doc! { "setParameter": 1, "externalClientBaseBackoffMS": base });
            world.try_command(&Command::new("admin", set.as_bytes())).unwrap();
        }
        world.fail(doc! { "times": 3 * OPERATIONS }, refusal("insert", code));
        let (shortest, longest) = shortest_and_longest(&world, code);
        assert!(shortest < LACKING, "{shortest:?}");
        let expected = Duration::from_millis(expected);
        let range = expected.saturating_sub(LACKING)..expected + ROUND_TRIPS;
        assert!(range.contains(&longest), "{longest:?} instead of {expected:?}");
    }
}

/// Any command is retried after overload, even a write that is otherwise not retryable, unless an
/// option disables retries or limits them (I-62, Q-20, Q-21; Client Backpressure prose tests 3 and
/// 4, with other options).
#[test]
fn backpressure_3_4_overload_is_retried_max_adaptive_retries_times_unless_disabled() {
    let (set, standalone) = (replica_set(), Blueprint::standalone());
    let documents = [
        doc! { "find": "c" },
        doc! { "ping": 1 },
        doc! { "insert": "c", "documents": [{ "_id": 1 }] },
    ];
    let [find, ping, insert] = documents.map(|document| encoded(&document));
    let find = Command::read("test", find.as_bytes());
    let ping = Command::new("admin", ping.as_bytes());
    let insert = Command::write("test", insert.as_bytes());
    let single = insert.clone().without_retry();
    for (blueprint, name, command, options, expected) in [
        (&set, "find", &find, "", 2),
        (&set, "find", &find, "maxAdaptiveRetries=1", 1),
        (&set, "find", &find, "maxAdaptiveRetries=0", 0),
        (&set, "find", &find, "maxAdaptiveRetries=4", 4),
        (&set, "find", &find, "retryReads=false", 0),
        (&set, "find", &find, "retryWrites=false", 2),
        (&set, "ping", &ping, "", 2),
        (&set, "ping", &ping, "retryReads=false", 0),
        (&set, "ping", &ping, "retryWrites=false", 0),
        (&set, "insert", &insert, "", 2),
        (&set, "insert", &single, "", 2),
        (&set, "insert", &single, "retryWrites=false", 0),
        (&standalone, "insert", &insert, "", 2),
        (&standalone, "insert", &insert, "retryWrites=false", 0),
        (&standalone, "insert", &single, "", 2),
    ] {
        let world = World::start(blueprint, options);
        world.fail(doc! { "times": 9 }, refusal(name, 462));
        let error = world.try_command(command).unwrap_err();
        for label in ["SystemOverloadedError", "RetryableError"] {
            assert!(error.has_label(label), "{error}");
        }
        let retries = (error.retries() as usize, world.log(name).0.len());
        assert_eq!(retries, (expected, 1 + expected), "{options} {command:?}");
        world.fail(doc! { "times": expected as i32 }, refusal(name, 462));
        world.try_command(command).unwrap();
    }
}

#[test]
fn with_retargeting_a_retry_avoids_the_overloaded_server() {
    // With `enableOverloadRetargeting`, a retry avoids the overloaded server (I-62, L-26, Q-23).
    let find = encoded(&doc! { "find": "c" });
    for (options, succeeds) in [
        ("readPreference=primaryPreferred", false),
        ("readPreference=primaryPreferred&enableOverloadRetargeting=true", true),
    ] {
        let world = World::start(&replica_set(), options);
        // Only the primary has the fail point.
        world.fail(doc! { "times": 9 }, refusal("find", 462));
        let result = world.try_command(&Command::read("test", find.as_bytes()));
        assert_eq!(result.is_ok(), succeeds, "{result:?}");
    }
}

#[test]
fn no_backoff_goes_beyond_the_time_limit() {
    // No backoff exceeds `timeoutMS`, which covers all attempts (Q-24, S-1).
    let world = World::start(&replica_set(), "maxAdaptiveRetries=50");
    let ping = encoded(&doc! { "ping": 1 });
    world.fail(doc! { "times": 99 }, refusal("ping", 462));
    let before = world.sim.now();
    let limit = Duration::from_secs(3);
    let command = Command::new("admin", ping.as_bytes()).with_timeout(limit);
    let error = world.try_command(&command).unwrap_err();
    assert_eq!(error.code(), Some(462), "{error}");
    assert!(world.sim.now().since(before) <= limit);
}
