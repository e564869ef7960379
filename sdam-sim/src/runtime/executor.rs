//! The scheduler, which chooses among ready tasks with a seeded random number generator, the
//! virtual clock, and the random identifiers of simulated clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use futures::future::BoxFuture;
use sdam_core::{
    rng::Rng,
    time::{Instant, UnixTime},
};
use sdam_transport::{
    clock::Clock,
    runtime::Entropy,
    spawn::{Spawner, Task},
};

use super::{
    Shared,
    disturbance::{Disturbance, Disturbances},
};

/// The tasks that are ready to be polled.
#[derive(Debug)]
pub(super) struct Queue(Mutex<Ready>);

#[derive(Debug)]
struct Ready {
    /// Task ids in the order in which they became ready, without duplicates.
    order: Vec<u64>,
    /// The same ids as in `order`, used to find duplicates.
    present: BTreeSet<u64>,
    rng: Rng,
    last_id: u64,
}

impl Queue {
    pub(super) fn new(rng: Rng) -> Self {
        Self(Mutex::new(Ready { order: Vec::new(), present: BTreeSet::new(), rng, last_id: 0 }))
    }

    /// Returns an id and a waker for the main future of `block_on`.
    pub(super) fn main(self: &Arc<Self>) -> (u64, Waker) {
        let id = self.lock().next_id();
        (id, self.waker(id))
    }

    pub(super) fn wake(&self, task: u64) {
        let mut ready = self.lock();
        if ready.present.insert(task) {
            ready.order.push(task);
        }
    }

    /// Removes one of the ready tasks at random and returns it. The seed determines the choice,
    /// unless a disturbance holds the chosen task back.
    fn next(&self, disturbances: &mut Disturbances) -> Option<u64> {
        let mut ready = self.lock();
        let count = ready.order.len();
        if count == 0 {
            return None;
        }
        let mut index = ready.rng.below(count as u64) as usize;
        if count > 1 && disturbances.holds_back(ready.order[index]) {
            index = (index + 1 + disturbances.below(count - 1)) % count;
        }
        let task = ready.order.remove(index);
        ready.present.remove(&task);
        disturbances.polls(task);
        Some(task)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().order.is_empty()
    }

    fn waker(self: &Arc<Self>, id: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { id, queue: Arc::clone(self) }))
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ready {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

struct TaskWaker {
    id: u64,
    queue: Arc<Queue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.queue.wake(self.id);
    }
}

/// All live tasks. The value of a task is `None` while the task is being polled.
#[derive(Default)]
pub(super) struct Tasks(Mutex<BTreeMap<u64, Option<Task>>>);

impl Tasks {
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn poll(&self, id: u64, queue: &Arc<Queue>) {
        let Some(mut task) = self.lock().get_mut(&id).and_then(Option::take) else {
            return;
        };
        let waker = queue.waker(id);
        let state = Pin::new(&mut task).poll(&mut Context::from_waker(&waker));
        if state.is_pending() {
            if let Some(place) = self.lock().get_mut(&id) {
                *place = Some(task);
            }
            return;
        }
        // Dropping the task may spawn or wake other tasks.
        drop(task);
        self.lock().remove(&id);
    }

    pub(super) fn clear(&self) {
        loop {
            let first = self.lock().pop_first();
            match first {
                Some(task) => drop(task),
                None => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Option<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Chooses the next task to poll. In a disturbed simulation, sometimes also wakes a random task
    /// or the main future, `main`.
    pub(super) fn next_task(&self, main: u64) -> Option<u64> {
        let mut state = self.state();
        if state.is_stalled() {
            return None;
        }
        let task = self.queue.next(&mut state.disturbances)?;
        state.trace.task(task);
        if state.disturbances.occurs(Disturbance::SpuriousPoll) {
            let place = state.disturbances.below(self.tasks.len() + 1);
            self.queue.wake(self.tasks.lock().keys().nth(place).copied().unwrap_or(main));
        }
        Some(task)
    }
}

/// The spawner of the simulated world.
#[derive(Debug)]
pub(super) struct SimSpawner(pub(super) Arc<Shared>);

impl Spawner for SimSpawner {
    fn spawn(&self, task: Task) {
        let id = self.0.queue.lock().next_id();
        self.0.tasks.lock().insert(id, Some(task));
        self.0.queue.wake(id);
    }
}

/// A clock whose time advances only while no task is ready.
#[derive(Debug)]
pub(super) struct SimClock {
    pub(super) shared: Arc<Shared>,
    /// True if timers may be late in a disturbed simulation.
    pub(super) may_be_late: bool,
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.shared.state().now()
    }

    fn wall(&self) -> UnixTime {
        self.shared.state().wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let mut sleep = Sleep::new(Arc::clone(&self.shared), deadline);
        sleep.may_be_late = self.may_be_late;
        Box::pin(sleep)
    }
}

/// A timer. Dropping it cancels it.
pub(super) struct Sleep {
    shared: Arc<Shared>,
    /// The time at which the timer is ready.
    due: Instant,
    /// The id of the timer after the first poll.
    timer: Option<u64>,
    may_be_late: bool,
}

impl Sleep {
    /// Creates a timer that is never late.
    pub(super) fn new(shared: Arc<Shared>, deadline: Instant) -> Self {
        Self { shared, due: deadline, timer: None, may_be_late: false }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.shared.state();
        if state.now() >= this.due {
            if let Some(timer) = this.timer.take() {
                state.timers.remove(&(this.due, timer));
            }
            return Poll::Ready(());
        }
        if this.timer.is_none() && this.may_be_late {
            this.due = this.due + state.disturbances.lateness();
        }
        this.timer = Some(state.set_timer(this.due, this.timer, cx.waker()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.shared.state().timers.remove(&(self.due, timer));
        }
    }
}

/// A source of identifiers that are derived from the simulation's seed, so that runs are
/// reproducible. All clients in a simulation share it, so no two have the same identifier.
#[derive(Debug)]
pub(super) struct SimEntropy(pub(super) Mutex<Rng>);

impl Entropy for SimEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&rng.next_u64().to_be_bytes()[..chunk.len()]);
        }
    }
}

sdam_core::opaque!(Tasks, |this| alive: this.len());
