//! The scheduler, which chooses among ready tasks with a seeded random number generator.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Wake, Waker},
};

use sdam_core::rng::Rng;
use sdam_transport::spawn::{Spawner, Task};

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
    /// unless the task is held back.
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
    /// Chooses the next task to poll. In a disturbed simulation, this sometimes wakes any task,
    /// which may be the main future, `main`.
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

sdam_core::opaque!(Tasks, |this| alive: this.len());
