//! Retries of commands refused by an overloaded server (Client Backpressure).

use std::time::Duration;

use bson::{Document, doc};
use sdam::client::Command;
use sdam_sim::Blueprint;

use super::{World, encoded, replica_set};

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

/// Returns the number of retries of a command that the primary, or the only server, refuses nine
/// times.
fn retries(blueprint: &Blueprint, options: &str, command: &Command<'_>, name: &str) -> u32 {
    let world = World::start(blueprint, options);
    world.fail(doc! { "times": 9 }, refusal(name, 462));
    let error = world.try_command(command).unwrap_err();
    for label in ["SystemOverloadedError", "RetryableError"] {
        assert!(error.has_label(label), "{error}");
    }
    assert_eq!(world.log(name).0.len() as u32, 1 + error.retries(), "{options} {command:?}");
    error.retries()
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

fn assert_near(time: Duration, expected: Duration) {
    let range = expected.saturating_sub(LACKING)..expected + ROUND_TRIPS;
    assert!(range.contains(&time), "{time:?} instead of {expected:?}");
}

/// I-62, Client Backpressure prose test 1: with a jitter of 0 there is no backoff; with a jitter of
/// 1 the two backoffs take 0.6 s in total. The tests in `sdam/src/client/retry/tests.rs` set the
/// jitter explicitly.
#[test]
fn backpressure_1_backoffs_are_exponential_and_random() {
    let world = World::start(&replica_set(), "");
    world.fail(doc! { "times": 3 * OPERATIONS }, refusal("insert", 2));
    let (shortest, longest) = shortest_and_longest(&world, 2);
    assert!(shortest < LACKING, "{shortest:?}");
    assert_near(longest, Duration::from_millis(600));
}

/// The number of retries is limited (I-62; Client Backpressure prose tests 3 and 4, with other
/// options).
#[test]
fn backpressure_3_4_overload_is_retried_max_adaptive_retries_times() {
    let find = encoded(&doc! { "find": "c" });
    let find = Command::read("test", find.as_bytes());
    for (options, expected) in [
        ("", 2),
        ("maxAdaptiveRetries=1", 1),
        ("maxAdaptiveRetries=0", 0),
        ("maxAdaptiveRetries=4", 4),
        ("retryReads=false", 0),
        ("retryWrites=false", 2),
    ] {
        assert_eq!(retries(&replica_set(), options, &find, "find"), expected, "{options}");
    }
}

/// The server may set the base of the backoffs (I-62, Q-22; Client Backpressure prose test 5).
#[test]
fn backpressure_5_the_server_may_name_the_base_of_the_backoffs() {
    let world = World::start(&replica_set(), "");
    world.fail(doc! { "times": 9 * OPERATIONS }, refusal("insert", 462));
    for (millis, expected) in [(0, 600), (50, 300), (0, 600)] {
        let set = encoded(&doc! { "setParameter": 1, "externalClientBaseBackoffMS": millis });
        let set = Command::new("admin", set.as_bytes());
        world.try_command(&set).unwrap();
        let (_, longest) = shortest_and_longest(&world, 462);
        assert_near(longest, Duration::from_millis(expected));
    }
    world.insert(0).unwrap();
}

#[test]
fn both_kinds_of_retries_have_to_be_enabled_for_any_command() {
    // Any command is retried, unless one of the options disables this (I-62, Q-20).
    let ping = encoded(&doc! { "ping": 1 });
    let ping = Command::new("admin", ping.as_bytes());
    for (options, expected) in [("", 2), ("retryReads=false", 0), ("retryWrites=false", 0)] {
        assert_eq!(retries(&replica_set(), options, &ping, "ping"), expected, "{options}");
    }
}

/// After an overload error, even writes that are otherwise not retryable are retried (I-62, Q-21).
#[test]
fn every_write_is_retried_after_overload_also_on_a_standalone() {
    let standalone = Blueprint::standalone();
    let insert = encoded(&doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let insert = Command::write("test", insert.as_bytes());
    for blueprint in [&replica_set(), &standalone] {
        for command in [insert.clone(), insert.clone().without_retry()] {
            for (options, expected) in [("", 2), ("retryWrites=false", 0)] {
                assert_eq!(retries(blueprint, options, &command, "insert"), expected);
            }
            let world = World::start(blueprint, "");
            world.fail(doc! { "times": 2 }, refusal("insert", 462));
            world.try_command(&command).unwrap();
        }
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
