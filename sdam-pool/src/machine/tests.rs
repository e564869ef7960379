//! Checks the rules for a pool against random histories. A task is polled only after it was woken.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Wake, Waker},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    ids::Generation,
};

use super::*;

/// A connection in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    id: u64,
    generation: Generation,
    service: Option<ObjectId>,
    is_usable: bool,
}

impl Pooled for Connection {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn service(&self) -> Option<ObjectId> {
        self.service
    }

    fn is_usable(&self) -> bool {
        self.is_usable
    }
}

/// A task that records whether it was woken.
#[derive(Debug, Default)]
struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    fn woken() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[derive(Clone, Debug)]
enum Step {
    CheckOut,
    CheckIn(usize),
    Break(usize),
    Establish(usize),
    Fail(usize),
    Drop(usize),
    TimeOut(usize),
    Clear {
        interrupt: bool,
    },
    ClearService(usize),
    Prepare,
    /// The early socket is open, or could not be opened.
    Dialed(bool),
    Ready,
    Pass,
    Close,
}

#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    max: u32,
    min: u32,
    connecting: u32,
    idle: Option<u64>,
    by_caller: bool,
    load_balanced: bool,
    /// True if check-outs are polled late in this history.
    lazy: bool,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sizes = (1_u32..5, 0_u32..3, 1_u32..4, proptest::option::of(1_u64..5));
    let modes = (any::<bool>(), any::<bool>(), any::<bool>());
    (sizes, modes).prop_map(|((max, min, connecting, idle), (by_caller, load_balanced, lazy))| {
        Shape { max, min: min.min(max), connecting, idle, by_caller, load_balanced, lazy }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        8 => Just(Step::CheckOut),
        6 => any::<usize>().prop_map(Step::CheckIn),
        2 => any::<usize>().prop_map(Step::Break),
        8 => any::<usize>().prop_map(Step::Establish),
        2 => any::<usize>().prop_map(Step::Fail),
        2 => any::<usize>().prop_map(Step::Drop),
        2 => any::<usize>().prop_map(Step::TimeOut),
        1 => any::<bool>().prop_map(|interrupt| Step::Clear { interrupt }),
        1 => any::<usize>().prop_map(Step::ClearService),
        2 => Just(Step::Ready),
        2 => Just(Step::Pass),
    ];
    let early = prop_oneof![
        Just(Step::Prepare),
        any::<bool>().prop_map(Step::Dialed),
        Just(Step::Clear { interrupt: false }),
        Just(Step::Pass),
        Just(Step::Close),
    ];
    let first = prop_oneof![3 => Just(Vec::new()), 1 => vec(early, 0..6)];
    (vec(one, 0..80), any::<bool>(), first).prop_map(|(mut steps, closes, first)| {
        steps.splice(0..0, first.into_iter().chain([Step::Ready]));
        steps.extend(closes.then_some(Step::Close));
        steps
    })
}

/// The pool and its environment.
struct History {
    machine: Machine<Connection>,
    shape: Shape,
    now: Instant,
    generation: Generation,
    services: BTreeMap<ObjectId, Generation>,
    worker: Arc<Task>,
    /// The worker's timer.
    timer: Option<Instant>,
    /// Check-outs without a result, oldest first.
    waiting: Vec<(Ticket, Arc<Task>)>,
    /// Attempts in progress, with the generations under which they began.
    attempts: Vec<(u64, Generation)>,
    /// Check-outs that make their attempts themselves.
    own: BTreeMap<u64, Ticket>,
    /// The number of check-outs that became overdue while they owned an attempt.
    overdue: usize,
    in_use: Vec<Connection>,
    /// True if the worker has an early socket.
    has_early: bool,
    /// The time at which the early socket was opened.
    opened: Option<Instant>,
    /// True once the pool has been made ready, cleared or closed.
    begun: bool,
    ended: bool,
}

impl History {
    fn new(shape: Shape) -> Self {
        let mut options = PoolOptions::default();
        options.max_pool_size = shape.max;
        options.min_pool_size = shape.min;
        options.max_connecting = shape.connecting;
        options.max_idle_time = shape.idle.map(Duration::from_secs);
        let config = Config {
            address: ServerAddress::new("a", 1),
            options,
            load_balanced: shape.load_balanced,
            by_caller: shape.by_caller,
        };
        Self {
            machine: Machine::new(config, Generation::FIRST),
            shape,
            now: Instant::EPOCH,
            generation: Generation::FIRST,
            services: BTreeMap::new(),
            worker: Task::woken(),
            timer: None,
            waiting: Vec::new(),
            attempts: Vec::new(),
            own: BTreeMap::new(),
            overdue: 0,
            in_use: Vec::new(),
            has_early: false,
            opened: None,
            begun: false,
            ended: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::CheckOut => self.check_out(),
            Step::CheckIn(index) => self.check_in(*index, true),
            Step::Break(index) => self.check_in(*index, false),
            Step::Establish(index) => self.establish(*index),
            Step::Fail(index) => self.fail(*index),
            Step::Drop(index) => self.drop_waiting(*index),
            Step::TimeOut(index) => self.time_out(*index),
            Step::Clear { interrupt } if !self.shape.load_balanced => self.clear(None, *interrupt),
            Step::ClearService(index) if self.shape.load_balanced => {
                self.clear(Some(service(*index as u64)), false);
            }
            Step::Clear { .. } | Step::ClearService(_) => {}
            Step::Prepare => {
                self.machine.prepare();
                self.finish();
            }
            Step::Dialed(is_open) => self.dialed(*is_open),
            Step::Ready => {
                self.begun = true;
                self.machine.ready(None);
                self.finish();
            }
            Step::Pass => {
                self.now = self.now + Duration::from_secs(1);
                if self.timer.is_some_and(|at| at <= self.now) {
                    self.worker.0.store(true, Ordering::Relaxed);
                }
            }
            Step::Close => self.close(),
        }
        let is_late = self.shape.lazy && !matches!(step, Step::Pass);
        self.run_tasks(is_late);
        self.check(is_late);
    }

    fn dialed(&mut self, is_open: bool) {
        if self.has_early && self.opened.is_none() {
            self.machine.dialed_early(is_open, self.now);
            self.has_early = is_open;
            self.opened = is_open.then_some(self.now);
            self.worker.0.store(true, Ordering::Relaxed);
        }
    }

    fn check_out(&mut self) {
        let result = self.machine.check_out(self.now);
        self.finish();
        match result {
            Ok(CheckOut::Connection(connection) | CheckOut::Cold(connection)) => {
                let is_first = self.waiting.is_empty() || self.shape.lazy;
                assert!(is_first, "a newcomer was served first");
                self.receive(connection);
            }
            Ok(CheckOut::Wait(ticket)) => self.waiting.push((ticket, Task::woken())),
            Err(error) => assert_ne!(error.kind(), ErrorKind::RuntimeShutDown),
        }
    }

    fn check_in(&mut self, index: usize, is_usable: bool) {
        if let Some(mut connection) = pick(&mut self.in_use, index) {
            connection.is_usable = is_usable;
            self.machine.check_in(connection, None, self.now);
            self.finish();
        }
    }

    /// Begins the attempt with this number; the server answers its hello immediately.
    fn begin(&mut self, id: u64) {
        let generation = if self.shape.load_balanced {
            let service = self.services.entry(service(id));
            *service.or_insert(Generation::FIRST)
        } else {
            self.generation
        };
        self.attempts.push((id, generation));
    }

    fn establish(&mut self, index: usize) {
        let Some((id, generation)) = self.take_attempt(index) else {
            return;
        };
        let connection = Connection {
            id,
            generation,
            service: self.shape.load_balanced.then(|| service(id)),
            is_usable: true,
        };
        self.machine.established(id, connection, self.now);
        self.finish();
    }

    fn fail(&mut self, index: usize) {
        if let Some((id, _)) = self.take_attempt(index) {
            let failure = AttemptFailure::Failed(shut_down());
            self.machine.failed(id, failure, self.now);
            self.finish();
        }
    }

    fn take_attempt(&mut self, index: usize) -> Option<(u64, Generation)> {
        let attempt = pick(&mut self.attempts, index)?;
        self.own.remove(&attempt.0);
        Some(attempt)
    }

    fn drop_waiting(&mut self, index: usize) {
        if let Some((ticket, _)) = pick(&mut self.waiting, index) {
            self.drop_own(ticket);
            self.machine.cancel(ticket, self.now);
            self.finish();
        }
    }

    /// Drops the attempt that a check-out makes itself.
    fn drop_own(&mut self, ticket: Ticket) {
        let own = self.own.iter().find(|(_, owner)| **owner == ticket);
        if let Some(id) = own.map(|(id, _)| *id) {
            self.own.remove(&id);
            self.attempts.retain(|(attempt, _)| *attempt != id);
            self.machine.failed(id, AttemptFailure::Dropped, self.now);
            self.finish();
        }
    }

    fn time_out(&mut self, index: usize) {
        if self.waiting.is_empty() {
            return;
        }
        let place = index % self.waiting.len();
        let ticket = self.waiting[place].0;
        let result = self.machine.time_out(ticket);
        self.finish();
        if let Some(result) = result {
            self.waiting.remove(place);
            self.end(result);
        } else {
            self.overdue += 1;
        }
    }

    /// Clears the pool, or only one service.
    fn clear(&mut self, service: Option<ObjectId>, interrupt: bool) {
        self.begun = true;
        let generation = match service {
            Some(service) => self.services.entry(service).or_insert(Generation::FIRST),
            None => &mut self.generation,
        };
        *generation = Generation::from_u64(generation.as_u64() + 1);
        let cause = Error::new(ErrorKind::Network, Stage::Operation, "gone");
        let mut clear = PoolClear::new(*generation, cause);
        (clear.service_id, clear.interrupt_in_use) = (service, interrupt);
        self.machine.clear(&clear);
        self.finish();
    }

    fn close(&mut self) {
        self.begun = true;
        if let Some(idle) = self.machine.close() {
            self.machine.close_later(idle);
            self.finish();
        }
        assert!(self.machine.close().is_none(), "a pool is closed once");
    }

    /// Carries out the machine's actions, as the owner of the machine would.
    fn finish(&mut self) {
        let after = mem::take(&mut self.machine.after);
        after.wake.into_iter().for_each(Waker::wake);
        for (connection, reason) in after.close {
            let is_expected = match reason {
                ConnectionClosedReason::Error => !connection.is_usable,
                ConnectionClosedReason::Stale => self.is_stale(&connection),
                _ => true,
            };
            assert!(is_expected, "{connection:?} was closed as {reason:?}");
        }
    }

    /// Polls woken tasks until there are no more.
    fn run_tasks(&mut self, is_late: bool) {
        loop {
            let worker = self.worker.take();
            if worker {
                self.run_worker();
            }
            let mut tasks = self.waiting.iter();
            let woken = tasks.position(|(_, task)| !is_late && task.take());
            match woken {
                Some(place) => self.poll(place),
                None if worker => {}
                None => return,
            }
        }
    }

    fn run_worker(&mut self) {
        loop {
            let mut waker = Some(Waker::from(Arc::clone(&self.worker)));
            match self.machine.work(self.now, &mut waker) {
                Work::Urgent(Urgent::Interrupt(_)) | Work::Close(..) => {}
                Work::Urgent(Urgent::Wake(wakers)) => wakers.into_iter().for_each(Waker::wake),
                Work::Cancel => self.cancel_attempts(),
                Work::Dial => {
                    assert!(!self.has_early && !self.begun && !self.shape.load_balanced);
                    self.has_early = true;
                }
                Work::DropEarly => {
                    assert!(mem::take(&mut self.has_early), "there is no socket");
                    self.opened = None;
                }
                Work::Open(id) => {
                    self.has_early = false;
                    self.opened = None;
                    self.begin(id);
                }
                Work::Wait(deadline) => {
                    assert!(deadline.is_none_or(|at| at > self.now), "a timer in the past");
                    self.timer = deadline;
                    return;
                }
                Work::End => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn cancel_attempts(&mut self) {
        for (id, generation) in std::mem::take(&mut self.attempts) {
            if self.machine.is_cancelled(id) {
                self.machine.failed(id, AttemptFailure::Cancelled, self.now);
                self.finish();
            } else {
                self.attempts.push((id, generation));
            }
        }
    }

    fn poll(&mut self, place: usize) {
        let (ticket, task) = self.waiting[place].clone();
        let mut waker = Some(Waker::from(task));
        let polled = self.machine.poll(ticket, self.now, &mut waker);
        self.finish();
        match polled {
            Poll::Ready(super::Step::Done(result)) => {
                self.waiting.remove(place);
                self.drop_own(ticket);
                let is_timeout = result.as_ref().is_err_and(Error::is_timeout);
                assert!(!is_timeout || self.overdue > 0, "it may wait longer");
                self.end(result);
            }
            Poll::Ready(super::Step::Open(id)) => {
                assert!(self.shape.by_caller);
                self.begin(id);
                self.own.insert(id, ticket);
                let mut waker = Some(Waker::from(Arc::clone(&self.waiting[place].1)));
                let polled = self.machine.poll(ticket, self.now, &mut waker);
                assert!(polled.is_pending());
            }
            Poll::Pending => {}
        }
    }

    fn end(&mut self, result: Result<Connection, Error>) {
        match result {
            Ok(connection) => self.receive(connection),
            Err(error) => assert_ne!(error, not_ready(), "the pool was ready once"),
        }
    }

    fn receive(&mut self, connection: Connection) {
        assert!(connection.is_usable);
        assert!(!self.is_stale(&connection), "{connection:?} is stale");
        let is_held = self.in_use.iter().any(|one| one.id == connection.id);
        assert!(!is_held, "{connection:?} was handed out twice");
        self.in_use.push(connection);
    }

    fn is_stale(&self, connection: &Connection) -> bool {
        let current = match connection.service {
            Some(service) => self.services[&service],
            None => self.generation,
        };
        connection.generation < current
    }

    fn check(&self, is_late: bool) {
        if let Some(opened) = self.opened {
            assert!(opened + Duration::from_secs(1) > self.now, "an unused socket stays open");
            let is_current = !self.ended && self.generation == Generation::FIRST;
            assert!(is_current, "a socket of a pool that was cleared or closed stays open");
        }
        let stats = self.machine.stats();
        let shape = self.shape;
        assert!(stats.pending <= shape.connecting as usize, "{stats:?}");
        assert_eq!(stats.pending, self.attempts.len(), "{stats:?}");
        assert!(stats.idle + stats.in_use + stats.pending <= shape.max as usize);
        if !is_late {
            assert_eq!(stats.in_use, self.in_use.len(), "all tasks have run");
            assert_eq!(stats.waiting, self.waiting.len(), "{stats:?}");
        }
        let open = (stats.idle + stats.in_use) as u64;
        assert_eq!(stats.opened, stats.closed + open, "{stats:?}");
        let is_driven = !(is_late && self.shape.by_caller);
        // CMAP: "the pool MUST create a Connection"
        if self.machine.waiters.len() > 0 && is_driven {
            let is_full = stats.idle + stats.in_use + stats.pending == shape.max as usize;
            let is_busy = stats.pending == shape.connecting as usize;
            assert!(stats.idle == 0 && (is_full || is_busy || !stats.is_ready), "{stats:?}");
        }
        assert_eq!(self.machine.waiters.slots.len(), self.waiting.len(), "slots leak");
    }
}

/// Removes and returns the item that `index` selects, modulo the number of items.
fn pick<T>(items: &mut Vec<T>, index: usize) -> Option<T> {
    (!items.is_empty()).then(|| items.remove(index % items.len()))
}

fn not_ready() -> Error {
    Error::pool_not_ready(&ServerAddress::new("a", 1))
}

fn shut_down() -> Error {
    Error::pool_shut_down(&ServerAddress::new("a", 1))
}

fn service(number: u64) -> ObjectId {
    ObjectId::from_bytes([(number % 2) as u8; 12])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_a_rule_of_the_pool(shape in shapes(), steps in steps()) {
        // The limits hold, and check-outs keep their order (F-67b, F-69b, P-2, P-3, P-4).
        let mut history = History::new(shape);
        for step in &steps {
            history.step(step);
        }
        // Every check-out ends, once the pool has become ready and connections are checked in.
        let closed = matches!(steps.last(), Some(Step::Close));
        if !closed {
            history.step(&Step::Ready);
        }
        for _ in 0..10_000 {
            if history.waiting.is_empty() && history.in_use.is_empty() {
                break;
            }
            history.step(&Step::Establish(0));
            history.step(&Step::CheckIn(0));
            history.step(&Step::Pass);
        }
        prop_assert!(history.waiting.is_empty(), "{:?}", history.waiting);
        if closed {
            prop_assert_eq!(history.machine.stats().idle, 0);
            prop_assert!(shape.by_caller || history.ended);
            prop_assert_eq!(history.machine.services.known.len(), 0);
        }
    }
}

#[test]
fn a_connection_is_looked_at_after_it_was_idle_for_more_than_a_second() {
    let mut history = History::new(Shape { max: 1, connecting: 1, ..Shape::default() });
    for step in [Step::Ready, Step::CheckOut, Step::Establish(0), Step::CheckIn(0), Step::Pass] {
        history.step(&step);
    }
    let taken = history.machine.check_out(history.now);
    let Ok(CheckOut::Connection(connection)) = taken else { panic!("{taken:?}") };
    history.machine.check_in(connection, None, history.now);
    history.now = history.now + Duration::from_millis(1001);
    let taken = history.machine.check_out(history.now);
    assert!(matches!(taken, Ok(CheckOut::Cold(_))), "{taken:?}");
}

#[test]
fn a_timeout_behind_a_load_balancer_counts_what_the_connections_are_pinned_to() {
    // The error message states how many connections in use are pinned, and to what (P-7).
    let shape = Shape { max: 4, connecting: 2, load_balanced: true, ..Shape::default() };
    let mut history = History::new(shape);
    history.step(&Step::Ready);
    for _ in 0..4 {
        history.step(&Step::CheckOut);
        history.step(&Step::Establish(0));
    }
    let times_out = |history: &mut History, cursors, transactions, other| {
        let Ok(CheckOut::Wait(ticket)) = history.machine.check_out(history.now) else {
            panic!("more connections than maxPoolSize");
        };
        let result = history.machine.time_out(ticket);
        let address = ServerAddress::new("a", 1);
        let expected = Error::wait_queue_timeout_pinned(&address, 4, cursors, transactions, other);
        assert_eq!(result, Some(Err(expected)));
    };
    times_out(&mut history, 0, 0, 4);
    history.machine.pin(Pin::Cursor);
    history.machine.pin(Pin::Transaction);
    times_out(&mut history, 1, 1, 2);
    history.machine.unpin(Some(Pin::Cursor));
    times_out(&mut history, 0, 1, 3);
}
