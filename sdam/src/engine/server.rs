//! One server of a running topology: its pool, its operations in progress, its errors, and the
//! orders from the engine to its task.

use std::{
    mem,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
};

use sdam_core::{
    address::ServerAddress,
    deployment::Output,
    error::Error,
    ids::{Generation, ServerId},
    server::{ServerDescription, Silence},
    time::Instant,
};
use sdam_transport::pool::PoolHandle;

use crate::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
    lock,
};

/// The number of counters into which a server's operation count is split.
const LANES: usize = 4;

/// The engine's state for one server, in addition to the description.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) core: Arc<ServerCore>,
    /// The operation counters. Each lane counts operations in progress by its reference count,
    /// minus one for this field.
    lanes: [Arc<Lane>; LANES],
    failures: Mutex<ServerFailures>,
    /// The pool's generation. It is written only under the topology lock. Relaxed accesses suffice,
    /// because no other data is published through it.
    generation: AtomicU64,
    pub(crate) orders: Orders,
    silence: Mutex<Silence>,
    /// The time at which a check began to open its connection; `None` if no check is connecting.
    connecting: Mutex<Option<Instant>>,
    /// True if connections have to report answers to operations, because a detector is asking
    /// whether the server still answers.
    asked: Arc<std::sync::atomic::AtomicBool>,
    /// True once the pool has been prepared or marked ready. Accessed only under the topology lock.
    has_begun: AtomicBool,
    /// True once the first check is [under way](Self::set_under_way). Relaxed accesses suffice: at
    /// worst, no socket is opened early.
    under_way: AtomicBool,
    /// True once the server is [abandoned](Self::abandon). Relaxed accesses suffice: the readers
    /// that are woken after the change see it, and no other data is published through it.
    abandoned: AtomicBool,
}

/// The part of a server that a [`SelectedServer`](crate::SelectedServer) keeps alive.
#[derive(Debug)]
pub(crate) struct ServerCore {
    pub(crate) id: ServerId,
    pub(crate) address: ServerAddress,
    /// The server's pool, unless the pool factory panicked.
    pool: OnceLock<Box<dyn PoolHandle>>,
}

impl ServerCore {
    pub(crate) fn pool(&self) -> Option<&dyn PoolHandle> {
        self.pool.get().map(|pool| &**pool)
    }
}

/// An operation counter. An `Arc` stores its reference counts in front of this struct, in the same
/// allocation of 64 bytes, so the counts of two lanes are never in the same cache line, and threads
/// do not contend.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) server: Arc<ServerCore>,
    _apart: [u64; 5],
}

impl Lane {
    fn new(server: &Arc<ServerCore>) -> Self {
        Self { server: Arc::clone(server), _apart: [0; 5] }
    }
}

impl Server {
    pub(crate) fn new(id: ServerId, address: ServerAddress) -> Self {
        let core = Arc::new(ServerCore { id, address, pool: OnceLock::new() });
        Self {
            lanes: std::array::from_fn(|_| Arc::new(Lane::new(&core))),
            core,
            failures: Mutex::default(),
            generation: AtomicU64::new(Generation::FIRST.as_u64()),
            orders: Orders::default(),
            silence: Mutex::default(),
            connecting: Mutex::default(),
            asked: Arc::default(),
            has_begun: AtomicBool::new(false),
            under_way: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> ServerId {
        self.core.id
    }

    /// Returns the pool; creates it first if there is none.
    pub(crate) fn pool_or_create(
        &self,
        create: impl FnOnce() -> Box<dyn PoolHandle>,
    ) -> &dyn PoolHandle {
        &**self.core.pool.get_or_init(create)
    }

    /// Returns the number of operations in progress (Server Selection: "operationCount").
    #[inline]
    pub(crate) fn operation_count(&self) -> u32 {
        let strong: usize = self.lanes.iter().map(Arc::strong_count).sum();
        u32::try_from(strong - LANES).unwrap_or(u32::MAX)
    }

    /// Counts an operation until the returned value is dropped.
    pub(crate) fn start_operation(&self, lane: usize) -> Arc<Lane> {
        let [first, ..] = &self.lanes;
        Arc::clone(self.lanes.get(lane % LANES).unwrap_or(first))
    }

    /// Returns the generation of the server's pool.
    pub(crate) fn generation(&self) -> Generation {
        Generation::from_u64(self.generation.load(Ordering::Relaxed))
    }

    pub(crate) fn set_generation(&self, generation: Generation) {
        self.generation.store(generation.as_u64(), Ordering::Relaxed);
    }

    /// Locks the server's errors; hold the guard only briefly.
    pub(crate) fn failures(&self) -> MutexGuard<'_, ServerFailures> {
        lock(&self.failures)
    }

    /// Returns the evidence that the server no longer answers.
    pub(crate) fn silence(&self) -> Silence {
        *lock(&self.silence)
    }

    pub(crate) fn set_silence(&self, silence: Silence) {
        *lock(&self.silence) = silence;
        self.asked.store(silence.asked.is_some(), Ordering::Relaxed);
    }

    /// Returns the time since which a check has been trying to open its connection.
    pub(crate) fn connecting(&self) -> Option<Instant> {
        *lock(&self.connecting)
    }

    pub(crate) fn set_connecting(&self, since: Option<Instant>) {
        *lock(&self.connecting) = since;
    }

    /// Returns the flag that makes connections report answers to operations.
    pub(crate) fn asked(&self) -> Arc<std::sync::atomic::AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Marks the pool as prepared or ready. Returns whether this is the first such call.
    pub(crate) fn begin_pool(&self) -> bool {
        !self.has_begun.swap(true, Ordering::Relaxed)
    }

    /// Records that the first check waits for the server. From then on, a socket that the pool
    /// opens early does not delay the check. Returns whether this is the first such call.
    pub(crate) fn set_under_way(&self) -> bool {
        !self.under_way.swap(true, Ordering::Relaxed)
    }

    /// Returns whether the first check waits for the server, or has ended.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Marks the server as abandoned: its task was dropped before it left the topology.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server's task was dropped before the server left the topology.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// A server's error and the time when it was processed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFailure {
    /// The error.
    pub error: Error,
    /// The time at which the topology processed the error, as measured by its runtime's clock.
    pub at: Instant,
}

/// The first and the last error of a server. They often differ: the error that began an outage is
/// soon followed by others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFailures {
    /// The first error since the server was last available; `None` while it is available.
    pub first: Option<ServerFailure>,
    /// The last error, even if the server has been available since.
    pub last: Option<ServerFailure>,
}

impl ServerFailures {
    /// Updates the recorded errors to reflect the server's new description, as of `now`.
    pub(crate) fn observe(&mut self, new: &ServerDescription, now: Instant) {
        if let Some(error) = &new.error {
            let failure = ServerFailure { error: error.clone(), at: now };
            self.first.get_or_insert_with(|| failure.clone());
            self.last = Some(failure);
        } else if new.server_type.is_available() {
            self.first = None;
        }
    }
}

/// The outputs for the task of one server, in the sequence in which the deployment has issued them.
///
/// They are appended under the engine's lock, and the task is [woken](Self::wake) after the engine
/// is unlocked. A single list preserves the sequence of requests and cancellations.
#[derive(Debug, Default)]
pub(crate) struct Orders(Mutex<Inbox>);

#[derive(Debug, Default)]
struct Inbox {
    news: News,
    /// The waker of the waiting task.
    waker: Option<Waker>,
}

impl Inbox {
    fn take(&mut self) -> News {
        let rest = News { end: self.news.end, ..News::default() };
        mem::replace(&mut self.news, rest)
    }
}

/// The orders and requests that a task has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) orders: Vec<Output>,
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
    pub(crate) fn push(&self, order: Output) {
        let orders = &mut self.lock().news.orders;
        // Reserves no spare capacity: the task takes the whole list, which usually has one order.
        orders.reserve_exact(1);
        orders.push(order);
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
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.0)
    }
}
