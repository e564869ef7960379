//! Detects that all tasks are idle.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use sdam_transport::spawn::{Spawner, Task};

use crate::running::lock;

/// Counts the tasks that are running or woken.
///
/// A task that wakes another one is itself running, so the count cannot reach zero while a message
/// is in transit between tasks.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    busy: usize,
    alive: usize,
    waiting: Option<Waker>,
}

impl Activity {
    /// Waits until every task waits for an external event.
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
        lock(&self.counts).alive
    }

    /// Returns a spawner that counts its tasks here and runs them on `inner`.
    pub fn watch(&self, inner: Arc<dyn Spawner>) -> WatchedSpawner {
        WatchedSpawner { activity: self.clone(), inner }
    }

    fn begin(&self) {
        let mut counts = lock(&self.counts);
        counts.busy += 1;
        counts.alive += 1;
    }

    fn woken(&self) {
        lock(&self.counts).busy += 1;
    }

    fn idle(&self, ended: bool) {
        let mut counts = lock(&self.counts);
        counts.busy -= 1;
        counts.alive -= usize::from(ended);
        let settled = counts.busy == 0;
        let waiting = counts.waiting.take_if(|_| settled);
        drop(counts);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    fn dropped(&self) {
        lock(&self.counts).alive -= 1;
    }
}

/// See [`Activity::watch`].
#[derive(Debug)]
pub struct WatchedSpawner {
    activity: Activity,
    inner: Arc<dyn Spawner>,
}

impl Spawner for WatchedSpawner {
    fn spawn(&self, task: Task) {
        self.activity.begin();
        let name = task.name();
        let watched = Watched {
            task,
            status: Arc::new(Status {
                activity: self.activity.clone(),
                state: Mutex::new(State { phase: Phase::Woken, waker: Waker::noop().clone() }),
            }),
        };
        self.inner.spawn(Task::new(name, watched));
    }
}

/// A task that reports whether it is busy.
struct Watched {
    task: Task,
    status: Arc<Status>,
}

/// State shared between the task and its wakers.
struct Status {
    activity: Activity,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// The runtime's waker.
    waker: Waker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The task is pending.
    Idle,
    /// The task was woken and will run.
    Woken,
    Running,
    /// The task was woken while running and will run again.
    RunningAndWoken,
    Ended,
}

impl Future for Watched {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let status = Arc::clone(&self.status);
        {
            let mut state = lock(&status.state);
            if state.phase == Phase::Idle {
                // Runtimes may poll a task without a wake-up.
                status.activity.woken();
            }
            state.phase = Phase::Running;
            state.waker.clone_from(cx.waker());
        }
        let waker = Waker::from(Arc::clone(&status));
        let poll = Pin::new(&mut self.task).poll(&mut Context::from_waker(&waker));
        let mut state = lock(&status.state);
        if poll.is_pending() && state.phase == Phase::RunningAndWoken {
            state.phase = Phase::Woken;
            let waker = state.waker.clone();
            drop(state);
            waker.wake();
            return Poll::Pending;
        }
        state.phase = match poll {
            Poll::Ready(()) => Phase::Ended,
            Poll::Pending => Phase::Idle,
        };
        drop(state);
        status.activity.idle(poll.is_ready());
        poll
    }
}

impl Drop for Watched {
    /// Stops counting a task that its runtime drops.
    fn drop(&mut self) {
        let phase = std::mem::replace(&mut lock(&self.status.state).phase, Phase::Ended);
        match phase {
            Phase::Ended => {}
            Phase::Idle => self.status.activity.dropped(),
            Phase::Woken | Phase::Running | Phase::RunningAndWoken => {
                self.status.activity.idle(true);
            }
        }
    }
}

impl Wake for Status {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Running => state.phase = Phase::RunningAndWoken,
            Phase::Idle => {
                state.phase = Phase::Woken;
                self.activity.woken();
                let waker = state.waker.clone();
                drop(state);
                waker.wake();
            }
            Phase::Woken | Phase::RunningAndWoken | Phase::Ended => {}
        }
    }
}
