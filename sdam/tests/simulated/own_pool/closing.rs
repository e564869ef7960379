//! Pools that are cleared, closed or abandoned between two steps of their tasks.

use futures::{
    future::{AbortHandle, Either, abortable, join, select},
    stream::FuturesUnordered,
};
use sdam::error::Stage;
use sdam_core::error::{Error, ErrorOutcome};

use super::*;

const EVENTS: Interest = Interest::POOLS.union(Interest::DESCRIPTIONS);

/// Returns the names of all events of one server's pool, followed by the name of the topology's
/// last event.
async fn names(events: EventStream, address: &ServerAddress) -> Vec<&'static str> {
    let all: Vec<Event> = events.collect().await;
    let is_own = |event: &&Event| {
        event.kind.address() == Some(address) && Interest::POOLS.contains(event.kind.name())
    };
    let names = all.iter().filter(is_own).chain(all.last());
    names.map(|event| event.kind.name().as_str()).collect()
}

#[test]
fn closing_waits_for_the_end_of_a_connection_in_use() {
    // Closing waits for connections in use, and a pool publishes its events in the specified order
    // (J-26, P-41, P-42, P-50).
    let sim = simulation(1);
    let (topology, events) = observed(&sim, "", EVENTS);
    let (began, address) = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let mut connection = pool.check_out().await.unwrap();
        drop(pool.check_out().await.unwrap());
        block(&sim, &["ping"], Mode::AlwaysOn, Duration::from_secs(1));
        let began = sim.now();
        let command = async {
            run_ping(&mut connection).await.unwrap();
            drop(connection);
        };
        join(command, topology.close()).await;
        (began, pool.address().clone())
    });
    let took = sim.now().since(began);
    let second = Duration::from_secs(1);
    assert!(took >= second && took < 2 * second, "{took:?}");
    assert_eq!(topology.events().dropped(), 0);
    assert_eq!(
        sim.block_on(names(events, &address)),
        [
            "PoolCreated",
            "PoolReady",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "ConnectionReady",
            "ConnectionCheckedOut",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "ConnectionReady",
            "ConnectionCheckedOut",
            "ConnectionCheckedIn",
            "ConnectionClosed",
            "PoolClosed",
            "ConnectionCheckedIn",
            "ConnectionClosed",
            "TopologyClosed",
        ]
    );
}

#[test]
fn closing_ends_after_its_patience_and_counts_the_missing_ends_as_dropped() {
    // Closing waits up to 2 s for operations in progress to end. Events that are still missing then
    // are counted as dropped (J-26, P-42).
    let sim = simulation(2);
    let (topology, events) = observed(&sim, "maxPoolSize=1", EVENTS);
    let address = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let mut connection = pool.check_out().await.unwrap();
        // Each of the following futures is polled only once.
        let mut waiting = pin!(pool.check_out());
        assert!(waiting.as_mut().now_or_never().is_none());
        let ping = ping();
        let mut running = pin!(connection.run_command(ping.as_bytes(), None));
        assert!(running.as_mut().now_or_never().is_none());
        let began = sim.now();
        topology.close().await;
        assert_eq!(sim.now().since(began), Topology::DELIVERY_PATIENCE);
        assert_eq!(topology.events().dropped(), 2);
        pool.address().clone()
    });
    assert_eq!(topology.events().dropped(), 2, "late ends change nothing");
    assert_eq!(
        sim.block_on(names(events, &address)),
        [
            "PoolCreated",
            "PoolReady",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "ConnectionReady",
            "ConnectionCheckedOut",
            "ConnectionCheckOutStarted",
            "PoolClosed",
            "TopologyClosed",
        ]
    );
}

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
        let sent = record(&sim);
        let pings = || {
            let sent = sent.lock().unwrap();
            sent.iter().filter(|sent| sent.command.contains_key("ping")).count()
        };
        let error = connection.run_command(ping().as_bytes(), None).await;
        let interrupted = Error::interrupted(pool.address());
        assert_eq!(error.unwrap_err(), interrupted);
        assert_eq!(pings(), 0, "the command was sent");
        drop(connection);
        run_ping(&mut primary(&topology).await.pool().check_out().await.unwrap()).await.unwrap();
        assert_eq!(pings(), 1);
        topology.close().await;
    });
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

/// Drops the task of a pool while a check-out is waiting. If `closes` is set, begins to close the
/// topology first. Returns the error of the check-out.
fn drop_worker(closes: bool) -> Error {
    let sim = simulation(3);
    let pools = Arc::<Mutex<Vec<AbortHandle>>>::default();
    let handles = Arc::clone(&pools);
    let topology = start_changed(&sim, "maxPoolSize=1", move |task| {
        let (task, handle) = abortable(task);
        handles.lock().unwrap().push(handle);
        Task::new("sdam-pool", task.map(drop))
    });
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
