//! One server of a running topology: its pool, its operations in progress, its tasks.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, OnceLock, PoisonError},
};

use sdam_core::{
    address::ServerAddress,
    ids::{Generation, ServerId},
    monitor::ServerStatus,
    rtt::RttWindow,
};
use sdam_transport::pool::PoolHandle;

use super::{control::MonitorControl, failures::Failures};
use crate::sync::{
    CountedArc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// The number of counters that an operation count is spread over.
const LANES: usize = 4;

/// The engine's state of a server, besides its description.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) core: Arc<ServerCore>,
    /// Each lane's reference count, less one for this field, is the number of operations that were
    /// started through it.
    lanes: [CountedArc<Lane>; LANES],
    pub(crate) control: MonitorControl,
    /// The control of the RTT task, while there is one.
    rtt_task: Mutex<Option<Arc<MonitorControl>>>,
    rtt: Mutex<RttWindow>,
    failures: Mutex<Failures>,
    abandoned: AtomicBool,
    /// The pool's generation shifted left by one; the lowest bit is set if the server is known.
    /// One word, so that a monitor reads both consistently. Written under the topology lock.
    status: AtomicU64,
}

/// The part of a server that a [`SelectedServer`](crate::SelectedServer) keeps alive.
#[derive(Debug)]
pub(crate) struct ServerCore {
    pub(crate) id: ServerId,
    pub(crate) address: ServerAddress,
    /// Empty only after a panic of the pool factory.
    pool: OnceLock<Box<dyn PoolHandle>>,
}

impl ServerCore {
    pub(crate) fn pool(&self) -> Option<&dyn PoolHandle> {
        self.pool.get().map(|pool| &**pool)
    }
}

/// An operation counter, aligned to its own cache lines so that threads do not contend.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Lane {
    pub(crate) server: Arc<ServerCore>,
}

impl Server {
    pub(crate) fn new(id: ServerId, address: ServerAddress) -> Self {
        let core = Arc::new(ServerCore {
            id,
            address,
            pool: OnceLock::new(),
        });
        Self {
            lanes: std::array::from_fn(|_| {
                CountedArc::new(Lane {
                    server: Arc::clone(&core),
                })
            }),
            core,
            control: MonitorControl::default(),
            rtt_task: Mutex::default(),
            rtt: Mutex::default(),
            failures: Mutex::default(),
            abandoned: AtomicBool::new(false),
            status: AtomicU64::new(Generation::FIRST.as_u64() << 1),
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
        let strong: usize = self.lanes.iter().map(CountedArc::strong_count).sum();
        u32::try_from(strong - LANES).unwrap_or(u32::MAX)
    }

    /// Counts an operation for as long as the result is held.
    pub(crate) fn start_operation(&self, lane: usize) -> CountedArc<Lane> {
        let [first, ..] = &self.lanes;
        CountedArc::clone(self.lanes.get(lane % LANES).unwrap_or(first))
    }

    /// Returns the generation of the server's pool, and whether the server is known.
    pub(crate) fn status(&self) -> ServerStatus {
        let word = self.status.load(Ordering::Acquire);
        ServerStatus {
            generation: Generation::from_u64(word >> 1),
            known: word & 1 == 1,
        }
    }

    pub(crate) fn set_generation(&self, generation: Generation) {
        self.set_status(ServerStatus {
            generation,
            ..self.status()
        });
    }

    pub(crate) fn set_known(&self, known: bool) {
        self.set_status(ServerStatus {
            known,
            ..self.status()
        });
    }

    fn set_status(&self, status: ServerStatus) {
        let word = status.generation.as_u64() << 1 | u64::from(status.known);
        self.status.store(word, Ordering::Release);
    }

    /// Locks the server's round-trip times; hold the guard only briefly.
    pub(crate) fn rtt(&self) -> MutexGuard<'_, RttWindow> {
        self.rtt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the server's errors; hold the guard only briefly.
    pub(crate) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the server's monitor as dropped without having been stopped.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Returns whether the server has lost its monitor.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Registers an RTT task and returns its control. Returns `None` if there is a task already,
    /// or if the server is stopped.
    pub(crate) fn begin_rtt_task(&self) -> Option<Arc<MonitorControl>> {
        let mut task = self.rtt_task();
        // Looked at under the lock, so that `stop` cannot miss a task that begins meanwhile.
        if task.is_some() || self.control.is_stopped() {
            return None;
        }
        Some(Arc::clone(task.insert(Arc::default())))
    }

    pub(crate) fn stop_rtt_task(&self) {
        if let Some(control) = self.rtt_task().take() {
            control.stop();
        }
    }

    /// Unregisters the RTT task that was using `control`.
    pub(crate) fn rtt_task_ended(&self, control: &Arc<MonitorControl>) {
        let mut task = self.rtt_task();
        if task.as_ref().is_some_and(|one| Arc::ptr_eq(one, control)) {
            *task = None;
        }
    }

    pub(crate) fn stop(&self) {
        self.control.stop();
        self.stop_rtt_task();
    }

    fn rtt_task(&self) -> MutexGuard<'_, Option<Arc<MonitorControl>>> {
        self.rtt_task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a number that is constant for each thread and seldom shared by two threads.
///
/// It only decides which counter is used, never what is selected. Only the number is kept in a
/// thread-local, nothing of any topology: reading the thread id costs a quarter of a selection.
pub(crate) fn lane_of_thread() -> usize {
    thread_local! {
        static LANE: usize = {
            let mut hasher = ThreadNumber(0);
            std::thread::current().id().hash(&mut hasher);
            hasher.0 as usize
        };
    }
    LANE.try_with(|lane| *lane).unwrap_or_default()
}

/// A hasher that extracts a thread's number from its opaque id.
struct ThreadNumber(u64);

impl Hasher for ThreadNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_rtt_task_runs_at_a_time_and_none_after_the_server_stops() {
        // G-8
        let address = ServerAddress::new("a", 1);
        let server = Server::new(ServerId::from_u64(1), address);
        let first = server.begin_rtt_task().unwrap();
        assert!(server.begin_rtt_task().is_none());
        server.stop_rtt_task();
        assert!(first.is_stopped());
        let second = server.begin_rtt_task().unwrap();
        server.rtt_task_ended(&first);
        assert!(
            server.begin_rtt_task().is_none(),
            "the second task is still registered"
        );
        server.rtt_task_ended(&second);
        let third = server.begin_rtt_task().unwrap();
        server.stop();
        assert!(third.is_stopped());
        assert!(server.begin_rtt_task().is_none());
    }

    #[test]
    fn each_thread_has_its_own_constant_lane_number() {
        let numbers = || [lane_of_thread(), lane_of_thread()];
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(numbers)).collect();
        let mut seen: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .chain([numbers()])
            .collect();
        assert!(seen.iter().all(|[first, second]| first == second));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5, "{seen:?}");
    }

    #[test]
    fn held_operations_are_counted_on_every_lane() {
        // L-43, L-44
        let address = ServerAddress::new("a", 1);
        let server = Server::new(ServerId::from_u64(1), address);
        assert_eq!(server.operation_count(), 0);
        let held: Vec<_> = (0..10).map(|lane| server.start_operation(lane)).collect();
        assert_eq!(server.operation_count(), 10);
        drop(held);
        assert_eq!(server.operation_count(), 0);
    }
}
