//! Interrupts commands on connections in use (CMAP: "interruptInUseConnections").

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, PoisonError, Weak},
    task::Poll,
};

use futures::future;
use sdam_core::ids::{Generation, ObjectId};

use crate::{
    machine::Interruption,
    sync::{
        AtomicWaker, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// Signals an interruption to the user of one connection.
#[derive(Debug)]
pub(crate) struct Interrupt {
    generation: Generation,
    service: Option<ObjectId>,
    /// Relaxed accesses suffice: the waker orders them with its registration, and no other data is
    /// published through the flag. A check-in that reads an old value does no harm, because the
    /// pool also compares the connection's generation.
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
            // Registered first, so that a later interruption wakes the task.
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
