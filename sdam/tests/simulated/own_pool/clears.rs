//! Pools that are cleared or end between two steps of their tasks.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{
    StreamExt,
    future::{AbortHandle, Either, abortable, join, poll_immediate, select},
    stream::FuturesUnordered,
};
use sdam::{
    Event, Interest, Spawner, error::Stage, events::EventName, pool::Generation, runtime::Task,
};
use sdam_core::error::{Error, ErrorKind, ErrorOutcome};
use sdam_sim::{
    Blueprint,
    runtime::{Direction, Sim, Verdict},
};

use super::{builder, observed, pass, ping, primary, run_ping, simulation};

#[test]
fn a_connection_that_was_interrupted_does_not_send_its_next_command() {
    // No further command is sent on an interrupted connection (F-65b).
    let sim = simulation(1);
    let uri = format!("{}&heartbeatFrequencyMS=500&connectTimeoutMS=1000", sim.uri());
    let topology = builder(&uri).start(sim.runtime()).unwrap();
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let mut connection = pool.check_out().await.unwrap();
        let silent = sim.status().primary().unwrap().id;
        sim.network().blackhole(silent, true);
        let before = connection.generation();
        while pool.stats().generation == before {
            pass(&sim, Duration::from_secs(1)).await;
        }
        sim.network().blackhole(silent, false);
        let pings = Arc::<Mutex<u32>>::default();
        let sent = Arc::clone(&pings);
        sim.network().add_rule(move |frame| {
            let is_ping = frame.bytes.windows(6).any(|bytes| bytes == b"\x10ping\0");
            if is_ping && frame.direction == Direction::ToServer {
                *sent.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
            Verdict::Pass
        });
        let error = connection.run_command(ping().as_bytes(), None).await;
        let interrupted = Error::interrupted(pool.address());
        assert_eq!(error.unwrap_err(), interrupted);
        assert_eq!(*pings.lock().unwrap(), 0, "the command was sent");
        drop(connection);
        run_ping(&mut primary(&topology).await.pool().check_out().await.unwrap()).await.unwrap();
        assert_eq!(*pings.lock().unwrap(), 1);
        topology.close().await;
    });
}

#[test]
fn one_event_reports_that_the_pool_of_a_server_in_an_outage_was_cleared() {
    // Its generation increases with every failed check, but it is paused already (F-63).
    let sim = simulation(1);
    let options = "heartbeatFrequencyMS=500&connectTimeoutMS=1000";
    let (topology, events) = observed(&sim, options, Interest::POOLS);
    let (address, generation) = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let silent = sim.status().primary().unwrap().id;
        sim.network().blackhole(silent, true);
        pass(&sim, Duration::from_secs(30)).await;
        topology.close().await;
        (pool.address().clone(), pool.stats().generation)
    });
    let events: Vec<Event> = sim.block_on(events.collect());
    let own = events.iter().filter(|event| event.kind.address() == Some(&address));
    let cleared = own.filter(|event| event.kind.name() == EventName::PoolCleared);
    assert_eq!(cleared.count(), 1);
    assert!(generation > Generation::FIRST.next().next(), "{generation}");
}

#[test]
fn a_check_out_whose_service_is_cleared_goes_on_waiting_in_its_place() {
    // If the connection given to a check-out has become stale, the check-out waits again, in its
    // former place in the queue (F-67b).
    let sim = Sim::new(2, &Blueprint::load_balanced(1));
    let uri = format!("{}&maxPoolSize=2", sim.uri());
    let topology = builder(&uri).start(sim.runtime()).unwrap();
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let (first, other) = join(pool.check_out(), pool.check_out()).await;
        let (first, other) = (first.unwrap(), other.unwrap());
        assert_eq!(first.service_id(), other.service_id());
        let order = Mutex::new(Vec::new());
        let wait = async |name: &'static str| {
            let mut connection = pool.check_out().await.unwrap();
            order.lock().unwrap().push(name);
            run_ping(&mut connection).await.unwrap();
        };
        let mut waiting = pin!(join(wait("older"), wait("newer")));
        assert!(poll_immediate(&mut waiting).await.is_none());
        // The older check-out is given a connection, but the connection's service is cleared before
        // the check-out takes it.
        drop(first);
        let error = other.report(Error::network(Stage::Operation, "broken"));
        assert_eq!(error.outcome(), Some(ErrorOutcome::ServiceCleared));
        other.discard();
        waiting.await;
        assert_eq!(*order.lock().unwrap(), ["older", "newer"]);
        topology.close().await;
    });
    assert_eq!((sim.tasks(), sim.connections()), (0, 0));
}

/// A spawner that can drop the tasks of pools.
#[derive(Debug)]
struct AbortableSpawner {
    spawner: Arc<dyn Spawner>,
    pools: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Spawner for AbortableSpawner {
    fn spawn(&self, task: Task) {
        if task.name() != "sdam-pool" {
            return self.spawner.spawn(task);
        }
        let (task, handle) = abortable(task);
        self.pools.lock().unwrap().push(handle);
        self.spawner.spawn(Task::new("sdam-pool", async {
            let _ = task.await;
        }));
    }
}

/// Drops the task of a pool while a check-out is waiting. If `closes` is set, begins to close the
/// topology first. Returns the error of the check-out.
fn drop_worker(closes: bool) -> Error {
    let sim = simulation(3);
    let mut runtime = sim.runtime();
    let pools = Arc::<Mutex<Vec<AbortHandle>>>::default();
    runtime.spawner = Arc::new(AbortableSpawner {
        spawner: Arc::clone(&runtime.spawner),
        pools: Arc::clone(&pools),
    });
    let uri = format!("{}&maxPoolSize=1", sim.uri());
    let topology = builder(&uri).start(runtime).unwrap();
    let error = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let held = pool.check_out().await.unwrap();
        // `FuturesUnordered` polls the check-out only after it has been woken.
        let mut waiting = FuturesUnordered::from_iter([pool.check_out()]);
        assert!(poll_immediate(waiting.next()).await.is_none());
        let mut closing = pin!(topology.close());
        if closes {
            assert!(poll_immediate(&mut closing).await.is_none());
        }
        pools.lock().unwrap().iter().for_each(AbortHandle::abort);
        let clock = sim.runtime().backend.clock;
        let patience = clock.sleep_until(sim.now() + Duration::from_secs(60));
        let Either::Left((Some(Err(error)), _)) = select(waiting.next(), patience).await else {
            unreachable!("the check-out was not woken");
        };
        drop(held);
        closing.await;
        error
    });
    assert_eq!((sim.tasks(), sim.connections()), (0, 0));
    error
}

#[test]
fn the_end_of_the_pools_task_ends_the_check_outs_that_wait() {
    // Waiting check-outs fail when the pool's task is dropped (F-63b).
    assert_eq!(drop_worker(false).kind(), ErrorKind::RuntimeShutDown);
    let closed = drop_worker(true);
    assert_eq!(closed.kind(), ErrorKind::PoolClosed, "{closed}");
}
