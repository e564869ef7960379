//! The state machine of a pool, and the lock that guards it.

use std::{
    mem,
    sync::PoisonError,
    task::{Context, Poll, Waker},
};

use sdam_core::{event::ConnectionClosedReason, time::Instant};

use crate::{
    machine::{After, Machine, Pooled, Step, Ticket},
    sync::{Mutex, MutexGuard},
};

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
        // Most changes wake nobody, and moving an empty `SmallVec` costs a tenth of a check-out.
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
