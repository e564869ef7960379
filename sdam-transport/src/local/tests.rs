use std::{
    cell::Cell,
    pin::pin,
    rc::Rc,
    sync::{Arc, Mutex},
};

use futures::{channel::oneshot, future};

use super::*;

#[test]
fn jobs_create_futures_that_stay_on_their_thread() {
    let (remote, jobs) = remote();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (ring, bell) = oneshot::channel::<()>();
    let own = Arc::clone(&log);
    remote.run(move || async move {
        let local = Rc::new(Cell::new(1));
        own.lock().unwrap().push(local.get());
        bell.await.unwrap();
        local.set(2);
        own.lock().unwrap().push(local.get());
    });
    let mut run = pin!(jobs.run());
    assert!(run.as_mut().now_or_never().is_none());
    assert_eq!(*log.lock().unwrap(), [1]);
    ring.send(()).unwrap();
    assert!(run.as_mut().now_or_never().is_none(), "the jobs are still running");
    assert_eq!(*log.lock().unwrap(), [1, 2]);
    drop(remote);
    assert!(run.now_or_never().is_some());
}

#[test]
fn jobs_finish_after_their_sender_was_dropped() {
    let (remote, jobs) = remote();
    let (ring, bell) = oneshot::channel::<()>();
    remote.run(|| async { bell.await.unwrap() });
    drop(remote);
    let mut run = pin!(jobs.run());
    assert!(run.as_mut().now_or_never().is_none());
    ring.send(()).unwrap();
    assert!(run.now_or_never().is_some());
}

#[test]
fn dropping_the_run_drops_running_waiting_and_later_jobs() {
    let (remote, jobs) = remote();
    let guard = Arc::new(());
    let work = |guard: &Arc<()>| {
        let guard = Arc::clone(guard);
        move || async move {
            future::pending::<()>().await;
            drop(guard);
        }
    };
    remote.run(work(&guard));
    let mut run = Box::pin(jobs.run());
    assert!(run.as_mut().now_or_never().is_none());
    remote.run(work(&guard));
    assert_eq!(Arc::strong_count(&guard), 3);
    drop(run);
    assert_eq!(Arc::strong_count(&guard), 1);
    remote.run(work(&guard));
    assert_eq!(Arc::strong_count(&guard), 1);
}

#[test]
fn a_cancelled_attempt_is_dropped_on_its_thread() {
    let (remote, jobs) = remote();
    let guard = Arc::new(());
    let own = Arc::clone(&guard);
    let mut run = pin!(jobs.run());
    {
        let connect = || async move {
            let opened = future::pending::<io::Result<()>>().await;
            drop(own);
            opened
        };
        let mut opening = Box::pin(remote.open(connect, |(), _| async {}));
        assert!(opening.as_mut().now_or_never().is_none());
        assert!(run.as_mut().now_or_never().is_none());
        assert_eq!(Arc::strong_count(&guard), 2);
    }
    assert!(run.as_mut().now_or_never().is_none());
    assert_eq!(Arc::strong_count(&guard), 1);
}

#[test]
fn an_attempt_fails_with_its_own_error_or_with_that_of_the_shutdown() {
    let (remote, jobs) = remote();
    let mut run = Box::pin(jobs.run());
    let refused = || async { Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused)) };
    let mut opening = Box::pin(remote.open(refused, |(), _| async {}));
    assert!(opening.as_mut().now_or_never().is_none());
    assert!(run.as_mut().now_or_never().is_none());
    let error = opening.now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    drop(run);
    let late = remote.open(refused, |(), _| async {}).now_or_never();
    let error = late.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the runtime has shut down");
}
