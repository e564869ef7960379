//! The orders from the engine to a server's task.

use std::{
    mem,
    sync::PoisonError,
    task::{Context, Poll, Waker},
};

use sdam_core::{deployment::ConnId, hello::HelloRequest, time::Instant};

use crate::sync::{Mutex, MutexGuard};

/// An action on a connection of a server.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) conn: ConnId,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    Connect { deadline: Option<Instant> },
    Send { request: HelloRequest, deadline: Option<Instant> },
    Read { deadline: Option<Instant> },
    Disconnect,
}

/// The orders for one server, in the sequence in which the engine has issued them.
///
/// They are appended under the engine's lock, and the task is [woken](Self::wake) after the engine
/// is unlocked. A single list preserves the sequence of requests and cancellations.
#[derive(Debug, Default)]
pub(crate) struct Orders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    news: News,
    /// The waker of the waiting task.
    waker: Option<Waker>,
}

impl State {
    fn take(&mut self) -> News {
        let rest = News { end: self.news.end, ..News::default() };
        mem::replace(&mut self.news, rest)
    }
}

/// The orders and requests that a task has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) orders: Vec<Order>,
    /// True if the server's deadline has to be read again.
    pub(crate) look: bool,
    /// True if an immediate check was requested.
    pub(crate) check: bool,
    /// True once the server has left the topology.
    pub(crate) end: bool,
}

impl News {
    fn is_empty(&self) -> bool {
        self.orders.is_empty() && !self.look && !self.check && !self.end
    }
}

impl Orders {
    /// Appends an order. The caller has to [wake](Self::wake) the task.
    pub(crate) fn push(&self, order: Order) {
        self.lock().news.orders.push(order);
    }

    /// Makes the task read the server's deadline again. The caller has to wake the task.
    pub(crate) fn look(&self) {
        self.lock().news.look = true;
    }

    /// Requests an immediate check from the task. The caller has to wake the task.
    pub(crate) fn check(&self) {
        self.lock().news.check = true;
    }

    /// Makes the task end after it has carried out the earlier orders. The caller has to wake the
    /// task.
    pub(crate) fn end(&self) {
        self.lock().news.end = true;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.lock().news.end
    }

    /// Wakes the waiting task.
    pub(crate) fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the orders and requests given since the last call. If there are none, registers the
    /// task's waker.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<News> {
        let mut state = self.lock();
        if !state.news.is_empty() {
            return Poll::Ready(state.take());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes the orders and requests given since the last call, without registering a waker.
    pub(crate) fn take(&self) -> News {
        self.lock().take()
    }

    /// Locks the state. Poisoning is ignored, because nothing can panic while the lock is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
