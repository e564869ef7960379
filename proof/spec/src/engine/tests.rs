//! Tests that the harness detects idle tasks, and that files with wrong expectations fail. The host
//! of these tests runs each task on a separate thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    thread,
};

use futures::{channel::oneshot, executor::block_on};
use sdam_testkit::DroppedTasks;
use sdam_transport::spawn::{Spawner, Task};
use serde_json::json;

use super::{activity::Activity, discovery_and_monitoring};
use crate::host::Host;

#[derive(Debug)]
struct Threads;

impl Spawner for Threads {
    fn spawn(&self, task: Task) {
        thread::spawn(|| block_on(task));
    }
}

pub(crate) fn host() -> Host {
    Host::new(Arc::new(Threads), |future| block_on(future))
}

#[test]
fn tasks_are_settled_when_all_wait_for_external_events() {
    // Each task runs on a separate thread and sends a message to the next task.
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
    assert_eq!((passed.load(Ordering::SeqCst), activity.alive()), (0, LINKS));
    first.send(()).unwrap();
    block_on(activity.settled());
    assert_eq!((passed.load(Ordering::SeqCst), activity.alive()), (LINKS, 0));
}

#[test]
fn a_task_woken_while_it_runs_is_not_settled() {
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

#[test]
fn a_task_dropped_by_its_runtime_counts_as_settled() {
    let activity = Activity::default();
    activity.watch(Arc::new(DroppedTasks)).spawn(Task::new("dropped", async {}));
    block_on(activity.settled());
    assert_eq!(activity.alive(), 0);
}

#[test]
fn a_response_of_an_unmonitored_server_fails() {
    let balanced = json!({
        "description": "load balancers are not monitored",
        "uri": "mongodb://a/?loadBalanced=true",
        "phases": [{ "responses": [["a", {}]], "outcome": { "events": [] } }],
    });
    let error = discovery_and_monitoring(&host(), &balanced).unwrap_err();
    assert_eq!(error, "phase 1: a:27017 is never checked");
}
