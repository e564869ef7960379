//! The harness itself: it knows when tasks are done, and notices what is wrong.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures::{FutureExt, channel::oneshot, executor::block_on};
use sdam_core::time::Instant;
use sdam_transport::{
    clock::Clock,
    spawn::{Spawner, Task},
};
use serde_json::{Value, json};

use super::{
    activity::Activity,
    clock::ManualClock,
    discovery_and_monitoring, max_staleness, rtt, server_selection,
    testing::{Threads, host},
};
use crate::{
    sdam::tests::{file, outcome},
    selection,
};

#[test]
fn tasks_are_settled_when_each_waits_for_something_outside() {
    // Each task passes the word on to the next one, each on a thread of its own.
    const LINKS: usize = 50;
    let activity = Activity::default();
    let spawner = activity.watch(Arc::new(Threads));
    let passed = Arc::new(AtomicUsize::new(0));
    let (first, mut word) = oneshot::channel::<()>();
    for _ in 0..LINKS {
        let (next, following) = oneshot::channel();
        let mine = std::mem::replace(&mut word, following);
        let passed = Arc::clone(&passed);
        spawner.spawn(Task::new("link", async move {
            mine.await.unwrap();
            passed.fetch_add(1, Ordering::SeqCst);
            next.send(()).unwrap();
        }));
    }
    block_on(activity.settled());
    assert_eq!(
        (passed.load(Ordering::SeqCst), activity.alive()),
        (0, LINKS)
    );
    first.send(()).unwrap();
    block_on(activity.settled());
    assert_eq!(
        (passed.load(Ordering::SeqCst), activity.alive()),
        (LINKS, 0)
    );
}

#[test]
fn a_task_that_is_woken_while_it_runs_is_not_done() {
    let activity = Activity::default();
    let spawner = activity.watch(Arc::new(Threads));
    let mut turns = 0;
    let (done, mut ended) = oneshot::channel();
    let mut done = Some(done);
    let task = futures::future::poll_fn(move |cx| {
        turns += 1;
        if turns == 1000 {
            done.take().unwrap().send(turns).unwrap();
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    spawner.spawn(Task::new("restless", task));
    block_on(activity.settled());
    assert_eq!(ended.try_recv(), Ok(Some(1000)));
}

/// Runs nothing: its tasks are dropped at once.
#[derive(Debug)]
struct Ended;

impl Spawner for Ended {
    fn spawn(&self, task: Task) {
        drop(task);
    }
}

#[test]
fn a_task_that_its_runtime_drops_is_not_waited_for() {
    let activity = Activity::default();
    activity
        .watch(Arc::new(Ended))
        .spawn(Task::new("dropped", async {}));
    block_on(activity.settled());
    assert_eq!(activity.alive(), 0);
}

#[test]
fn sleepers_wake_once_their_time_has_come_and_are_forgotten_when_dropped() {
    let clock = ManualClock::default();
    let at = |millis: u64| Instant::from_millis(millis);
    let mut early = clock.sleep_until(at(10));
    let mut late = clock.sleep_until(at(20));
    assert_eq!(early.as_mut().now_or_never(), None);
    assert_eq!(late.as_mut().now_or_never(), None);
    assert_eq!(clock.next_deadline(), Some(at(10)));
    clock.advance_to(at(10));
    assert_eq!(early.as_mut().now_or_never(), Some(()));
    assert_eq!(late.as_mut().now_or_never(), None);
    assert_eq!(clock.next_deadline(), Some(at(20)));
    drop(late);
    assert_eq!(clock.next_deadline(), None);
    clock.advance_to(at(5));
    assert_eq!(clock.now(), at(10));
    assert_eq!(clock.now() + Duration::from_millis(1), at(11));
}

#[test]
fn a_running_topology_that_differs_from_the_file_fails() {
    let check = |pointer: &str, wrong: Value, message: &str| {
        let mut outcome = outcome();
        *outcome.pointer_mut(pointer).unwrap() = wrong;
        let error = discovery_and_monitoring(&host(), &file(&outcome)).unwrap_err();
        assert_eq!(error, format!("phase 2 (both): {message}"));
    };
    assert_eq!(discovery_and_monitoring(&host(), &file(&outcome())), Ok(()));
    check(
        "/topologyType",
        json!("Sharded"),
        "topologyType is \"ReplicaSetWithPrimary\", expected \"Sharded\"",
    );
    check(
        "/servers/a:27017/pool/generation",
        json!(1),
        "outcome.servers: a:27017: server.pool: generation is Some(0), expected Some(1)",
    );
}

#[test]
fn a_response_of_a_server_that_nobody_asks_fails() {
    let balanced = json!({
        "description": "nobody monitors a load balancer",
        "uri": "mongodb://a/?loadBalanced=true",
        "phases": [{ "responses": [["a", {}]], "outcome": { "events": [] } }],
    });
    let error = discovery_and_monitoring(&host(), &balanced).unwrap_err();
    assert_eq!(error, "phase 1: nobody will ever ask a:27017");
}

#[test]
fn a_topology_is_led_to_the_description_and_selected_from() {
    let check = |suitable: &[&str], window: &[&str], error: Option<&str>| {
        let verdict = server_selection(&host(), &selection::tests::file(suitable, window));
        match error {
            None => assert_eq!(verdict, Ok(())),
            Some(key) => assert!(verdict.unwrap_err().starts_with(key), "{key}"),
        }
    };
    check(&["b", "c"], &["b"], None);
    check(&["b"], &["b"], Some("suitable_servers are"));
    check(&["a", "b", "c"], &["b"], Some("suitable_servers are"));
    check(&["b", "c"], &["b", "c"], Some("in_latency_window are"));
    check(&["b", "c"], &[], Some("in_latency_window are"));
}

#[test]
fn a_description_that_no_reply_leads_to_fails() {
    let check = |change: &dyn Fn(&mut Value), message: &str| {
        let mut file = selection::tests::file(&["b", "c"], &["b"]);
        change(&mut file["topology_description"]);
        let error = server_selection(&host(), &file).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    };
    check(
        &|topology| topology["servers"][1]["type"] = json!("RSPrimary"),
        "the topology was not reached: there is ",
    );
    check(
        &|topology| topology["type"] = json!("ReplicaSetNoPrimary"),
        "the topology was not reached: there is ",
    );
    check(
        &|topology| topology["servers"][1]["type"] = json!("RSArbiter"),
        "nothing makes a server a RSArbiter here",
    );
}

#[test]
fn staleness_is_refused_where_an_error_is_expected_and_only_there() {
    let verdict = |seconds: i64, error: bool| {
        let file = json!({
            "topology_description": { "type": "ReplicaSetNoPrimary", "servers": [
                { "address": "a:27017", "type": "PossiblePrimary" },
                { "address": "b:27017", "type": "RSSecondary", "avg_rtt_ms": 5,
                  "lastUpdateTime": 3, "lastWrite": { "lastWriteDate": { "$numberLong": "7" } } },
            ] },
            "read_preference": { "mode": "Nearest", "maxStalenessSeconds": seconds },
            "suitable_servers": [{ "address": "b:27017", "type": "RSSecondary" }],
            "in_latency_window": [{ "address": "b:27017", "type": "RSSecondary" }],
            "error": error,
        });
        max_staleness(&host(), &file)
    };
    for (seconds, fails) in [(-1, false), (89, true), (90, false)] {
        assert_eq!(verdict(seconds, fails), Ok(()), "{seconds}");
        assert!(verdict(seconds, !fails).is_err(), "{seconds}");
    }
}

#[test]
fn averages_come_from_the_time_that_answers_take() {
    let verdict = |average: f64| {
        let file = json!({ "avg_rtt_ms": 10, "new_rtt_ms": 20.5, "new_avg_rtt": average });
        rtt(&host(), &file)
    };
    assert_eq!(verdict(12.1), Ok(()));
    assert!(verdict(12.100_002).is_err());
}
