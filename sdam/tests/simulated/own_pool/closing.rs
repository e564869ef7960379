//! The events of connections and check-outs that are under way when their topology is closed.

use std::{pin::pin, time::Duration};

use futures::{FutureExt, StreamExt, future::join};
use sdam::{Event, Interest, ServerAddress, Topology};
use sdam_events::channel::EventStream;
use sdam_pool::Pool;
use sdam_sim::{action::Mode, runtime::Sim};

use super::{block, observed, ping, primary, run_ping, simulation};

fn start(sim: &Sim, options: &str) -> (Topology<Pool>, EventStream) {
    observed(sim, options, Interest::POOLS.union(Interest::DESCRIPTIONS))
}

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
    let (topology, events) = start(&sim, "");
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
    let (topology, events) = start(&sim, "maxPoolSize=1");
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
