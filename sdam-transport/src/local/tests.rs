use std::{cell::Cell, pin::pin, rc::Rc, sync::Arc};

use futures::{channel::oneshot, future};

use super::*;

#[test]
fn jobs_create_futures_that_stay_on_their_thread_and_outlast_their_sender() {
    let (remote, jobs) = remote();
    let (ring, bell) = oneshot::channel::<()>();
    let (done, outcome) = oneshot::channel();
    remote.run(move || async move {
        let local = Rc::new(Cell::new(1));
        bell.await.unwrap();
        local.set(2);
        done.send(local.get()).unwrap();
    });
    let mut run = pin!(jobs.run());
    assert!(run.as_mut().now_or_never().is_none());
    let other = remote.clone();
    drop(remote);
    assert!(run.as_mut().now_or_never().is_none());
    ring.send(()).unwrap();
    assert!(run.as_mut().now_or_never().is_none(), "more jobs may come");
    assert_eq!(outcome.now_or_never(), Some(Ok(2)));
    drop(other);
    assert!(run.now_or_never().is_some());
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
