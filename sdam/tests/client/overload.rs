//! Retries of commands that an overloaded server has refused (Client Backpressure).

use std::time::Duration;

use bson::doc;
use sdam::client::Command;

use crate::{World, encoded, replica_set};

/// Makes the primary refuse this many pings.
fn overload(world: &World, times: i32) {
    let data = doc! {
        "failCommands": ["ping"],
        "errorCode": 462,
        "errorLabels": ["SystemOverloadedError", "RetryableError"],
    };
    world.fail(doc! { "times": times }, data);
}

/// I-62
#[test]
fn any_command_is_retried_twice_after_backoffs_of_at_most_200_and_400_ms() {
    let world = World::start(&replica_set(), "");
    let ping = encoded(&doc! { "ping": 1 });
    let ping = Command::new("admin", ping.as_bytes());
    let mut waited = Duration::ZERO;
    for _ in 0..20 {
        overload(&world, 2);
        let before = world.sim.now();
        world.try_command(&ping).unwrap();
        let took = world.sim.now().since(before);
        // Three round trips take a few milliseconds.
        assert!(took < Duration::from_millis(620), "{took:?}");
        waited += took;
    }
    // The mean of the backoffs together is 300 ms.
    assert!(waited > 20 * Duration::from_millis(150), "{waited:?}");
    overload(&world, 3);
    let error = world.try_command(&ping).unwrap_err();
    assert_eq!((error.code(), error.retries()), (Some(462), 2));
    assert!(error.has_label("SystemOverloadedError"));
}

/// I-62
#[test]
fn the_options_limit_the_retries_and_both_kinds_have_to_be_enabled_for_any_command() {
    let ping = encoded(&doc! { "ping": 1 });
    for (options, retries) in [
        ("maxAdaptiveRetries=0", 0),
        ("maxAdaptiveRetries=4", 4),
        ("retryReads=false", 0),
        ("retryWrites=false", 0),
    ] {
        let world = World::start(&replica_set(), options);
        overload(&world, 9);
        let error = world
            .try_command(&Command::new("admin", ping.as_bytes()))
            .unwrap_err();
        assert_eq!(error.retries(), retries, "{options}");
    }
}

/// I-62, L-26
#[test]
fn with_retargeting_a_retry_avoids_the_overloaded_server() {
    let find = encoded(&doc! { "find": "c" });
    for (options, succeeds) in [
        ("readPreference=primaryPreferred", false),
        (
            "readPreference=primaryPreferred&enableOverloadRetargeting=true",
            true,
        ),
    ] {
        let world = World::start(&replica_set(), options);
        let data = doc! {
            "failCommands": ["find"],
            "errorCode": 462,
            "errorLabels": ["SystemOverloadedError", "RetryableError"],
        };
        // The primary alone has the fail point.
        world.fail(doc! { "times": 9 }, data);
        let result = world.try_command(&Command::read("test", find.as_bytes()));
        assert_eq!(result.is_ok(), succeeds, "{result:?}");
    }
}

#[test]
fn no_backoff_goes_beyond_the_time_limit() {
    let world = World::start(&replica_set(), "maxAdaptiveRetries=50");
    let ping = encoded(&doc! { "ping": 1 });
    overload(&world, 99);
    let before = world.sim.now();
    let limit = Duration::from_secs(3);
    let command = Command::new("admin", ping.as_bytes()).with_timeout(limit);
    let error = world.try_command(&command).unwrap_err();
    assert_eq!(error.code(), Some(462), "{error}");
    assert!(world.sim.now().since(before) <= limit);
}
