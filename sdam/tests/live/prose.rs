//! The prose tests of monitoring, and what a suspended host must not cause.
//!
//! Time is what events say it was; nothing here sleeps. Servers before 5.0 cannot let hello fail
//! for one application alone, so what needs that is left out for them.

mod order;
mod suspend;

use std::time::Duration;

use futures::executor::block_on;
use sdam_core::{
    event::{Event, EventKind},
    server::ServerType,
};
use sdam_live::{FailCommand, Mongod, Version};
use sdam_select::criteria::Criteria;

use crate::{observer::Observer, runtime::standalone};

/// `heartbeatFrequencyMS` of these tests.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// How many streamed replies tell their pace.
const REPLIES: u32 = 8;

/// A topology of one server that a fail point can tell from others by its application.
fn observe(mongod: &Mongod, app_name: &str, options: &str) -> Observer {
    let host = mongod.host();
    Observer::start(&format!(
        "mongodb://{host}/?directConnection=true&appName={app_name}{options}"
    ))
}

/// A server that can let hello fail for one application alone.
fn selective_server() -> Option<Mongod> {
    standalone().filter(|_| crate::runtime::version().unwrap_or_default() >= Version::V5_0)
}

/// Every kind of hello, and only that of `app_name`.
fn hello_of(app_name: &str) -> FailCommand {
    FailCommand::new(["hello", "isMaster"]).app_name(app_name)
}

fn succeeded(kind: &EventKind) -> Option<bool> {
    match kind {
        EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => Some(heartbeat.awaited),
        _ => None,
    }
}

fn count(events: &[Event], wanted: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| wanted(&event.kind)).count()
}

/// F-30, F-32, F-24: a server that streams sends a reply each `heartbeatFrequencyMS`, one that is
/// polled is asked as often.
#[test]
fn streaming_1_replies_come_once_per_heartbeat() {
    let Some(mongod) = standalone() else { return };
    let streams = mongod.hello().unwrap().contains_key("topologyVersion");
    let observer = observe(&mongod, "streaming", "&heartbeatFrequencyMS=500");
    let is_steady = |kind: &EventKind| succeeded(kind).filter(|awaited| *awaited == streams);
    let (_, mut mark) = observer.wait_for("the first steady reply", 0, is_steady);
    let first = observer.events()[mark - 1].at;
    for _ in 0..REPLIES {
        (_, mark) = observer.wait_for("the next reply", mark, is_steady);
    }
    let passed = observer.events()[mark - 1].at.since(first);
    // The default heartbeat takes twenty times as long.
    assert!(passed > HEARTBEAT * (REPLIES - 1), "{passed:?}");
    assert!(passed < HEARTBEAT * REPLIES * 3, "{passed:?}");
    observer.finish();
}

/// G-15, G-4, G-7, G-10: no server is shown without a round-trip time, and the time follows the
/// server while it streams.
#[test]
fn rtt_1_every_description_has_a_time_and_the_average_follows_the_server() {
    let Some(mongod) = selective_server() else {
        return;
    };
    let observer = observe(&mongod, "rtt", "&heartbeatFrequencyMS=500");
    observer.wait_for("a streamed reply", 0, |kind| {
        succeeded(kind).filter(|awaited| *awaited)
    });
    let slow = mongod
        .fail_command(hello_of("rtt").block_for(Duration::from_millis(500)))
        .unwrap();
    let average = block_on(observer.topology.wait_for(
        |snapshot| {
            let server = snapshot.description().servers().first()?;
            server
                .rtt
                .map(|rtt| rtt.average)
                .filter(|average| *average > Duration::from_millis(250))
        },
        Duration::from_secs(60),
    ));
    assert!(average.is_some(), "the average has not risen");
    slow.disable().unwrap();
    let mut changes = 0;
    for event in observer.events() {
        if let EventKind::ServerDescriptionChanged { new, .. } = event.kind
            && new.server_type != ServerType::Unknown
        {
            assert!(!new.rtt.unwrap().average.is_zero());
            changes += 1;
        }
    }
    assert!(changes > 0);
    observer.finish();
}

/// F-41, F-44, F-52: a selection hastens checks, but each begins 500 ms after the last at least.
#[test]
fn monitors_sleep_at_least_the_minimum_between_checks() {
    let Some(mongod) = selective_server() else {
        return;
    };
    let failing = mongod
        .fail_command(hello_of("minimum").times(5).error_code(1234))
        .unwrap();
    let observer = observe(&mongod, "minimum", "&serverSelectionTimeoutMS=60000");
    block_on(observer.topology.select(&Criteria::write())).unwrap();
    let (_, mark) = observer.wait_for("the check that succeeds", 0, succeeded);
    let events = &observer.events()[..mark];
    let failed = |kind: &EventKind| matches!(kind, EventKind::ServerHeartbeatFailed { .. });
    assert_eq!(count(events, failed), 5);
    let starts: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::ServerHeartbeatStarted(_)))
        .map(|event| event.at)
        .collect();
    for pair in starts.windows(2) {
        let pause = pair[1].since(pair[0]);
        assert!(pause >= HEARTBEAT, "{pause:?} from check to check");
    }
    let all = starts[5].since(starts[0]);
    // Without anybody waiting the second check alone would come after ten seconds.
    assert!(all < Duration::from_secs(10), "{all:?}");
    failing.disable().unwrap();
    observer.finish();
}

/// F-60, F-50, F-64: a pool is ready after the first successful check and not before, cleared when
/// a check fails, and ready again once one succeeds.
#[test]
fn pools_are_ready_after_a_successful_check_and_cleared_by_a_failed_one() {
    let Some(mongod) = selective_server() else {
        return;
    };
    let observer = observe(&mongod, "pools", "&heartbeatFrequencyMS=500");
    let ready = |kind: &EventKind| matches!(kind, EventKind::PoolReady { .. }).then_some(());
    let ((), first) = observer.wait_for("the pool to be ready", 0, ready);
    let before = observer.events();
    assert_eq!(
        count(&before[..first], |kind| succeeded(kind).is_some()),
        1,
        "the first successful check comes before"
    );
    let failing = mongod
        .fail_command(hello_of("pools").error_code(1234))
        .unwrap();
    let ((), failed) = observer.wait_for("a check to fail", first, |kind| {
        matches!(kind, EventKind::ServerHeartbeatFailed { .. }).then_some(())
    });
    let (interrupt, cleared) =
        observer.wait_for("the pool to be cleared", failed, |kind| match kind {
            EventKind::PoolCleared { clear, .. } => Some(clear.interrupt_in_use),
            _ => None,
        });
    assert!(!interrupt, "nothing has timed out");
    failing.disable().unwrap();
    let (_, again) = observer.wait_for("a check to succeed", cleared, succeeded);
    assert_eq!(
        count(&observer.events()[cleared..again], |kind| ready(kind)
            .is_some()),
        0,
        "not before it succeeds"
    );
    observer.wait_for("the pool to be ready again", again, ready);
    observer.finish();
}
