//! Detects when all tasks are idle.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use sdam_transport::spawn::{Spawner, Task};

use crate::running::lock;

/// Counts the tasks that are running or have been woken.
///
/// A task that wakes another one is itself running. The count can therefore not reach zero while a
/// message between tasks is on its way.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    busy: isize,
    alive: isize,
    waiting: Option<Waker>,
}

impl Activity {
    /// Waits until all tasks are waiting for external events.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let counts = Arc::clone(&self.counts);
        poll_fn(move |cx| {
            let mut counts = lock(&counts);
            if counts.busy == 0 {
                return Poll::Ready(());
            }
            counts.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Returns the number of tasks that have not ended.
    pub fn alive(&self) -> usize {
        lock(&self.counts).alive.unsigned_abs()
    }

    /// Returns a spawner that runs tasks on `inner` and counts them in this value.
    pub fn watch(&self, inner: Arc<dyn Spawner>) -> WatchedSpawner {
        WatchedSpawner { activity: self.clone(), inner }
    }

    /// Adds `busy` and `alive` to the numbers of busy and live tasks.
    fn count(&self, busy: isize, alive: isize) {
        let mut counts = lock(&self.counts);
        counts.busy += busy;
        counts.alive += alive;
        let settled = counts.busy == 0;
        let waiting = counts.waiting.take_if(|_| settled);
        drop(counts);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// A spawner that counts its tasks; see [`Activity::watch`].
#[derive(Debug)]
pub struct WatchedSpawner {
    activity: Activity,
    inner: Arc<dyn Spawner>,
}

impl Spawner for WatchedSpawner {
    fn spawn(&self, task: Task) {
        self.activity.count(1, 1);
        let state = State {
            is_woken: true,
            is_running: false,
            has_ended: false,
            waker: Waker::noop().clone(),
        };
        let status = Status { activity: self.activity.clone(), state: Mutex::new(state) };
        let name = task.name();
        self.inner.spawn(Task::new(name, Watched { task, status: Arc::new(status) }));
    }
}

/// A task that reports whether it is busy.
struct Watched {
    task: Task,
    status: Arc<Status>,
}

/// The state that the task and its wakers share.
struct Status {
    activity: Activity,
    state: Mutex<State>,
}

struct State {
    /// True if the task was woken and has yet to be polled. The task counts as busy until then; a
    /// poll in progress is counted separately.
    is_woken: bool,
    is_running: bool,
    has_ended: bool,
    /// The waker of the runtime.
    waker: Waker,
}

impl Status {
    /// Stops counting the task.
    fn end(&self) {
        let mut state = lock(&self.state);
        if !std::mem::replace(&mut state.has_ended, true) {
            let busy = isize::from(state.is_woken) + isize::from(state.is_running);
            drop(state);
            self.activity.count(-busy, -1);
        }
    }
}

impl Future for Watched {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let status = Arc::clone(&self.status);
        let mut state = lock(&status.state);
        state.waker.clone_from(cx.waker());
        if !std::mem::take(&mut state.is_woken) {
            // The runtime may have polled the task without a wake-up.
            status.activity.count(1, 0);
        }
        state.is_running = true;
        drop(state);
        let waker = Waker::from(Arc::clone(&status));
        let poll = Pin::new(&mut self.task).poll(&mut Context::from_waker(&waker));
        match poll {
            Poll::Ready(()) => status.end(),
            Poll::Pending => {
                lock(&status.state).is_running = false;
                status.activity.count(-1, 0);
            }
        }
        poll
    }
}

impl Drop for Watched {
    /// Stops counting a task when the runtime drops it.
    fn drop(&mut self) {
        self.status.end();
    }
}

impl Wake for Status {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.has_ended || state.is_woken {
            return;
        }
        state.is_woken = true;
        self.activity.count(1, 0);
        let waker = state.waker.clone();
        drop(state);
        waker.wake();
    }
}
