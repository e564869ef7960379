//! Models of a pool's lock and tasks, whose interleavings `cargo xtask loom` explores.

use std::{future::poll_fn, sync::Arc, task::Poll};

use loom::{future::block_on, thread};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    ids::{Generation, ObjectId},
    pool::{PoolClear, PoolOptions},
    time::Instant,
};
use sdam_events::sync::explore;

use crate::{
    core::{Core, Interrupt, Interrupts},
    machine::{
        AttemptFailure, CheckOut, Config, Interruption, Machine, Pooled, Step, Ticket, Urgent, Work,
    },
};

const OLD: Generation = Generation::FIRST;
const NEW: Generation = Generation::from_u64(1);

#[derive(Debug)]
struct Connection(Generation);

impl Pooled for Connection {
    fn generation(&self) -> Generation {
        self.0
    }

    fn service(&self) -> Option<ObjectId> {
        None
    }

    fn is_usable(&self) -> bool {
        true
    }
}

type Pool = Core<Connection>;

/// Creates a ready pool of at most `size` connections.
fn pool(size: u32) -> Arc<Pool> {
    let mut options = PoolOptions::default();
    options.max_pool_size = size;
    let config = Config {
        address: ServerAddress::new("a", 1),
        options,
        load_balanced: false,
        by_caller: false,
    };
    let pool = Core::new(Machine::new(config, OLD));
    pool.change(|machine| machine.ready(None));
    Arc::new(pool)
}

/// Opens the pool's first connection, and returns it checked out.
fn first_connection(pool: &Pool) -> Connection {
    let ticket = match check_out(pool) {
        Ok(CheckOut::Wait(ticket)) => ticket,
        other => panic!("the pool had a connection: {other:?}"),
    };
    let Work::Open(id) = pool.with(|machine| machine.work(Instant::EPOCH, &mut None)) else {
        panic!("nothing is opened");
    };
    pool.change(|machine| machine.established(id, Connection(OLD), Instant::EPOCH));
    block_on(wait(pool, ticket)).unwrap()
}

fn check_out(pool: &Pool) -> Result<CheckOut<Connection>, Error> {
    pool.change(|machine| machine.check_out(Instant::EPOCH)).0
}

async fn wait(pool: &Pool, ticket: Ticket) -> Result<Connection, Error> {
    match poll_fn(|cx| pool.poll(ticket, Instant::EPOCH, cx).0).await {
        Step::Done(result) => result,
        Step::Open(_) => panic!("the worker opens connections"),
    }
}

async fn obtain(pool: &Pool) -> Result<Connection, Error> {
    match check_out(pool)? {
        CheckOut::Connection(connection) | CheckOut::Cold(connection) => Ok(connection),
        CheckOut::Wait(ticket) => wait(pool, ticket).await,
    }
}

fn check_in(pool: &Pool, connection: Connection) {
    pool.change(|machine| machine.check_in(connection, None, Instant::EPOCH));
}

fn clear(pool: &Pool) {
    let cause = Error::new(ErrorKind::Network, Stage::Operation, "gone");
    pool.change(|machine| machine.clear(&PoolClear::new(NEW, cause)));
}

fn close(pool: &Pool) {
    if let Some(idle) = pool.with(Machine::close) {
        pool.change(|machine| machine.close_later(idle));
    }
}

/// Runs `act` concurrently on a separate thread.
fn beside(pool: &Arc<Pool>, act: impl FnOnce(&Pool) + Send + 'static) -> thread::JoinHandle<()> {
    let pool = Arc::clone(pool);
    thread::spawn(move || act(&pool))
}

/// Acts as the worker: opens connections of the pool's generation until the pool is closed.
async fn work(pool: &Pool) {
    poll_fn(|cx| {
        loop {
            let mut waker = Some(cx.waker().clone());
            match pool.with(|machine| machine.work(Instant::EPOCH, &mut waker)) {
                Work::Urgent(Urgent::Wake(wakers)) => {
                    wakers.into_iter().for_each(std::task::Waker::wake)
                }
                Work::Open(id) => {
                    let generation = pool.with(|machine| machine.stats().generation);
                    pool.change(|machine| {
                        machine.established(id, Connection(generation), Instant::EPOCH)
                    });
                }
                Work::Cancel => {
                    for id in 1..10 {
                        pool.change(|machine| {
                            machine.failed(id, AttemptFailure::Cancelled, Instant::EPOCH)
                        });
                    }
                }
                Work::Urgent(Urgent::Interrupt(_)) | Work::Close(..) => {}
                Work::Dial | Work::DropEarly => {}
                Work::Wait(_) => return Poll::Pending,
                Work::End => return Poll::Ready(()),
            }
        }
    })
    .await;
}

#[test]
fn a_waiting_check_out_gets_the_connection_that_another_thread_checks_in() {
    // A waiting check-out takes a connection that is checked in while it waits (P-5).
    explore(None, || {
        let pool = pool(1);
        let connection = first_connection(&pool);
        let other = beside(&pool, move |pool| check_in(pool, connection));
        let connection = block_on(obtain(&pool)).unwrap();
        other.join().unwrap();
        check_in(&pool, connection);
        assert_eq!(pool.with(|machine| machine.stats().idle), 1);
    });
}

#[test]
fn a_check_out_that_is_dropped_while_it_is_served_passes_the_connection_on() {
    // If a check-out is dropped while a connection is handed to it, the next check-out gets the
    // connection (P-9).
    explore(3, || {
        let pool = pool(1);
        let connection = first_connection(&pool);
        let Ok(CheckOut::Wait(dropped)) = check_out(&pool) else {
            panic!("there is an idle connection");
        };
        let checks_in = beside(&pool, move |pool| check_in(pool, connection));
        let drops = beside(&pool, move |pool| {
            pool.change(|machine| machine.cancel(dropped, Instant::EPOCH));
        });
        let connection = block_on(obtain(&pool)).unwrap();
        checks_in.join().unwrap();
        drops.join().unwrap();
        check_in(&pool, connection);
        let stats = pool.with(|machine| machine.stats());
        assert_eq!((stats.idle, stats.in_use, stats.waiting), (1, 0, 0), "{stats:?}");
    });
}

#[test]
fn no_check_out_is_lost_and_none_is_stale_when_the_pool_is_cleared_beside_it() {
    // A clear makes connections stale, and check-outs fail or get a newer connection (F-63, I-1).
    explore(2, || {
        let pool = pool(1);
        let connection = first_connection(&pool);
        let worker = beside(&pool, move |pool| block_on(work(pool)));
        let clears = beside(&pool, move |pool| {
            clear(pool);
            pool.change(|machine| machine.ready(None));
        });
        check_in(&pool, connection);
        match block_on(obtain(&pool)) {
            Ok(connection) => {
                check_in(&pool, connection);
            }
            Err(error) if error.kind() == ErrorKind::PoolCleared => {}
            Err(error) => panic!("{error}"),
        }
        clears.join().unwrap();
        // After the clear, only connections of the new generation are handed out.
        let connection = block_on(obtain(&pool)).unwrap();
        assert_eq!(connection.0, NEW);
        check_in(&pool, connection);
        close(&pool);
        worker.join().unwrap();
        let stats = pool.with(|machine| machine.stats());
        assert_eq!((stats.idle, stats.in_use, stats.pending), (0, 0, 0), "{stats:?}");
    });
}

#[test]
fn a_check_out_beside_the_closing_of_the_pool_ends() {
    // Closing fails check-outs, including waiting ones (P-40).
    explore(2, || {
        let pool = pool(1);
        let worker = beside(&pool, move |pool| block_on(work(pool)));
        let closes = beside(&pool, move |pool| close(pool));
        if let Ok(connection) = block_on(obtain(&pool)) {
            check_in(&pool, connection);
        }
        closes.join().unwrap();
        worker.join().unwrap();
        let stats = pool.with(|machine| machine.stats());
        assert_eq!((stats.idle, stats.in_use, stats.waiting), (0, 0, 0), "{stats:?}");
        assert_eq!(stats.opened, stats.closed);
    });
}

#[test]
fn a_check_out_ends_when_the_pool_is_closed_and_its_worker_is_dropped_beside_it() {
    // Dropping the pool's task also fails waiting check-outs (F-63b).
    explore(3, || {
        let pool = pool(1);
        let connection = first_connection(&pool);
        let closes = beside(&pool, move |pool| close(pool));
        let drops = beside(&pool, move |pool| {
            pool.change(Machine::runtime_shut_down);
        });
        match block_on(obtain(&pool)) {
            Err(error)
                if matches!(error.kind(), ErrorKind::RuntimeShutDown | ErrorKind::PoolClosed) => {}
            other => panic!("{other:?}"),
        }
        closes.join().unwrap();
        drops.join().unwrap();
        check_in(&pool, connection);
        let stats = pool.with(|machine| machine.stats());
        assert_eq!((stats.in_use, stats.waiting), (0, 0), "{stats:?}");
    });
}

#[test]
fn a_command_that_waits_notices_its_interruption() {
    // A clear may interrupt connections of earlier generations (F-65).
    explore(None, || {
        let interrupts = Arc::new(Interrupts::default());
        let interrupt = Arc::new(Interrupt::new(OLD, None));
        interrupts.add(&interrupt);
        let other = thread::spawn(move || {
            interrupts.interrupt(Interruption { below: NEW, service: None });
        });
        let outcome = block_on(interrupt.race(std::future::pending::<()>()));
        assert_eq!(outcome, None);
        other.join().unwrap();
    });
}
