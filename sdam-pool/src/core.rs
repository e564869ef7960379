//! The parts of a pool that threads share: the lock around its state machine, and the interruption
//! of commands on connections in use (CMAP: "interruptInUseConnections").
//!
//! In tests with `--cfg sdam_loom`, locks, atomics and wakers come from loom, so that models explore
//! every interleaving of the real code.

#[cfg(not(all(test, sdam_loom)))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
use std::{
    future::Future,
    mem,
    pin::pin,
    sync::{Arc, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use futures::future;
#[cfg(not(all(test, sdam_loom)))]
use futures::task::AtomicWaker;
#[cfg(all(test, sdam_loom))]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
use sdam_core::{
    event::ConnectionClosedReason,
    ids::{Generation, ObjectId},
    time::Instant,
};
#[cfg(all(test, sdam_loom))]
use sdam_events::sync::AtomicWaker;

use crate::machine::{After, Interruption, Machine, Pooled, Step, Ticket};

/// Connections to close, and the reasons.
pub(crate) type Closing<C> = Vec<(C, ConnectionClosedReason)>;

/// The machine of a pool and the lock around it.
///
/// Tasks are woken, and wakers and connections dropped, only after the lock is released, because
/// each of these steps may call back into the pool.
#[derive(Debug)]
pub(crate) struct Core<C>(Mutex<Machine<C>>);

impl<C: Pooled> Core<C> {
    pub(crate) fn new(machine: Machine<C>) -> Self {
        Self(Mutex::new(machine))
    }

    /// Changes the machine and wakes the tasks that the change concerns. The caller closes the
    /// returned connections.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Machine<C>) -> T) -> (T, Closing<C>) {
        let mut machine = self.lock();
        let answer = change(&mut machine);
        let After { wake, close } = &mut machine.after;
        // Most changes wake no task, and moving an empty `SmallVec` costs a tenth of a check-out.
        let wake = (!wake.is_empty()).then(|| mem::take(wake));
        let close = mem::take(close);
        drop(machine);
        wake.into_iter().flatten().for_each(Waker::wake);
        (answer, close)
    }

    /// Reads from the machine, or makes a change that affects no other task.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&mut Machine<C>) -> T) -> T {
        read(&mut self.lock())
    }

    /// Polls a waiting check-out. The caller closes the returned connections.
    pub(crate) fn poll(
        &self,
        ticket: Ticket,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> (Poll<Step<C>>, Closing<C>) {
        let mut waker = Some(cx.waker().clone());
        let polled = self.change(|machine| machine.poll(ticket, now, &mut waker));
        drop(waker);
        polled
    }

    fn lock(&self) -> MutexGuard<'_, Machine<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signals an interruption to the user of one connection.
#[derive(Debug)]
pub(crate) struct Interrupt {
    generation: Generation,
    service: Option<ObjectId>,
    /// Relaxed accesses suffice: `waker` orders the accesses when it is registered and woken, and
    /// no other data is published through the flag. A check-in that reads an old value does no
    /// harm, because the pool also compares the connection's generation.
    is_set: AtomicBool,
    waker: AtomicWaker,
}

impl Interrupt {
    pub(crate) fn new(generation: Generation, service: Option<ObjectId>) -> Self {
        Self { generation, service, is_set: AtomicBool::new(false), waker: AtomicWaker::new() }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Runs `command` until it ends or the connection is interrupted. If the connection is
    /// interrupted already, `command` is not polled.
    pub(crate) async fn race<F: Future>(&self, command: F) -> Option<F::Output> {
        if self.is_set() {
            return None;
        }
        let mut command = pin!(command);
        future::poll_fn(|cx| {
            if let Poll::Ready(output) = command.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // The waker is registered before the flag is read, so that a later interruption wakes
            // the task.
            self.waker.register(cx.waker());
            if self.is_set() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    fn is_meant(&self, interruption: Interruption) -> bool {
        self.service == interruption.service && self.generation < interruption.below
    }
}

/// The connections of a pool that can be interrupted.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<Vec<Weak<Interrupt>>>);

impl Interrupts {
    /// Adds a connection. Removes dropped connections before the list grows.
    pub(crate) fn add(&self, interrupt: &Arc<Interrupt>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|one| one.strong_count() > 0);
            let live = all.len();
            all.reserve(live.max(8));
        }
        all.push(Arc::downgrade(interrupt));
    }

    /// Interrupts the connections affected by the clear, without holding the lock.
    pub(crate) fn interrupt(&self, interruption: Interruption) {
        let meant: Vec<_> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let live = all.iter().filter_map(Weak::upgrade);
            live.filter(|one| one.is_meant(interruption)).collect()
        };
        for interrupt in meant {
            interrupt.set();
        }
    }
}
