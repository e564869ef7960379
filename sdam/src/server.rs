//! One server of a running topology: its pool, its operations in progress, its tasks.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, PoisonError},
};

use sdam_core::{
    address::ServerAddress,
    ids::{Generation, ServerId},
    monitor::ServerStatus,
    pool::PoolHandle,
    rtt::RttWindow,
};

use crate::{
    failures::Failures,
    mailbox::Mailbox,
    sync::{
        CountedArc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// How many counters an operation count is spread over.
const LANES: usize = 4;

/// What the engine keeps of a server, besides its description.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) core: Arc<ServerCore>,
    /// Each lane's reference count, less one for this field, is the number of operations that were
    /// started through it.
    lanes: [CountedArc<Lane>; LANES],
    pub(crate) mailbox: Mailbox,
    /// How the task that measures round-trip times is told to end, while there is one.
    rtt_task: Mutex<Option<Arc<Mailbox>>>,
    rtt: Mutex<RttWindow>,
    failures: Mutex<Failures>,
    abandoned: AtomicBool,
    /// The generation of the pool, twice, and one more if the server is known: a single word, so
    /// that a monitor sees both as they were at one moment. Written under the topology's lock.
    status: AtomicU64,
}

/// What a selected server offers for as long as it is held.
#[derive(Debug)]
pub(crate) struct ServerCore {
    pub(crate) id: ServerId,
    pub(crate) address: ServerAddress,
    pub(crate) pool: Arc<dyn PoolHandle>,
}

/// A counter on cache lines of its own, so that threads do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Lane {
    pub(crate) server: Arc<ServerCore>,
}

impl Server {
    pub(crate) fn new(id: ServerId, address: ServerAddress, pool: Arc<dyn PoolHandle>) -> Self {
        let core = Arc::new(ServerCore { id, address, pool });
        Self {
            lanes: std::array::from_fn(|_| {
                CountedArc::new(Lane {
                    server: Arc::clone(&core),
                })
            }),
            core,
            mailbox: Mailbox::default(),
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

    /// How many operations are in progress (Server Selection: "operationCount").
    pub(crate) fn operation_count(&self) -> u32 {
        let strong: usize = self.lanes.iter().map(CountedArc::strong_count).sum();
        u32::try_from(strong - LANES).unwrap_or(u32::MAX)
    }

    /// Counts an operation for as long as the result is held.
    pub(crate) fn start_operation(&self, lane: usize) -> CountedArc<Lane> {
        let [first, ..] = &self.lanes;
        CountedArc::clone(self.lanes.get(lane % LANES).unwrap_or(first))
    }

    /// The generation that the server's pool has reached, and whether the server is known.
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

    /// The server's round-trip times; held for a few instructions at a time.
    pub(crate) fn rtt(&self) -> MutexGuard<'_, RttWindow> {
        self.rtt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server has failed with; held for a few instructions at a time.
    pub(crate) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the server's monitor is gone without having been told to end.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Whether the server had a monitor and has lost it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Where to listen for the end of a task that is to measure round-trip times; `None` if there
    /// is one already, or nothing to measure any more.
    pub(crate) fn begin_rtt_task(&self) -> Option<Arc<Mailbox>> {
        let mut task = self.rtt_task();
        // Looked at under the lock, so that `stop` cannot miss a task that begins meanwhile.
        if task.is_some() || self.mailbox.is_stopped() {
            return None;
        }
        Some(Arc::clone(task.insert(Arc::default())))
    }

    /// Ends the task that measures round-trip times, if there is one.
    pub(crate) fn stop_rtt_task(&self) {
        if let Some(mailbox) = self.rtt_task().take() {
            mailbox.stop();
        }
    }

    /// Notes that the task that was listening to `mailbox` has ended, however it did.
    pub(crate) fn rtt_task_ended(&self, mailbox: &Arc<Mailbox>) {
        let mut task = self.rtt_task();
        if task.as_ref().is_some_and(|one| Arc::ptr_eq(one, mailbox)) {
            *task = None;
        }
    }

    /// Ends the server's tasks.
    pub(crate) fn stop(&self) {
        self.mailbox.stop();
        self.stop_rtt_task();
    }

    fn rtt_task(&self) -> MutexGuard<'_, Option<Arc<Mailbox>>> {
        self.rtt_task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that is the same each time a thread asks, and seldom the same for two threads.
///
/// It only decides which counter is used, never what is selected. What is kept per thread is the
/// number itself, which says nothing about any topology: asking for the id costs a quarter of a
/// selection.
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

/// Lets a thread's number out of its opaque id.
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
    use sdam_core::pool::NoPools;

    use super::*;

    #[test]
    fn one_task_measures_at_a_time_and_none_after_the_end() {
        // G-8
        let address = ServerAddress::new("a", 1);
        let server = Server::new(ServerId::from_u64(1), address, Arc::new(NoPools));
        let first = server.begin_rtt_task().unwrap();
        assert!(server.begin_rtt_task().is_none());
        server.stop_rtt_task();
        assert!(first.is_stopped());
        let second = server.begin_rtt_task().unwrap();
        server.rtt_task_ended(&first);
        assert!(server.begin_rtt_task().is_none(), "the second one goes on");
        server.rtt_task_ended(&second);
        let third = server.begin_rtt_task().unwrap();
        server.stop();
        assert!(third.is_stopped());
        assert!(server.begin_rtt_task().is_none());
    }

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_no_other() {
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
    fn operations_count_while_they_are_held_on_any_lane() {
        // L-43, L-44
        let address = ServerAddress::new("a", 1);
        let server = Server::new(ServerId::from_u64(1), address, Arc::new(NoPools));
        assert_eq!(server.operation_count(), 0);
        let held: Vec<_> = (0..10).map(|lane| server.start_operation(lane)).collect();
        assert_eq!(server.operation_count(), 10);
        drop(held);
        assert_eq!(server.operation_count(), 0);
    }
}
