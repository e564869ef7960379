//! Errors on connections that a pool opens for `minPoolSize`.

use std::{sync::atomic::Ordering, time::Duration};

use futures::StreamExt;
use sdam::{
    Event, EventKind, Interest, Options, ServerAddress, ServerType, Topology, TopologyBuilder,
};
use sdam_core::event::ConnectionClosedReason;
use sdam_events::channel::EventStream;
use sdam_pool::{Pool, Pools};
use sdam_sim::{
    Action,
    action::{FailCommand, Mode, Target},
    runtime::{Sim, Verdict},
};

use super::{observed, overload::limit, pass, primary, simulation};

/// The duration of each phase of the test. It is longer than the longest pause between two
/// attempts.
const MEASURED: Duration = Duration::from_secs(20);

/// Starts a topology whose monitors open only one connection to each server.
fn start(sim: &Sim, options: &str) -> (Topology<Pool>, EventStream) {
    let options = format!("serverMonitoringMode=poll&{options}");
    observed(sim, &options, Interest::POOLS.union(Interest::DESCRIPTIONS))
}

/// Closes the topology and returns the events of one server.
async fn close(
    topology: Topology<Pool>,
    events: EventStream,
    address: &ServerAddress,
) -> Vec<Event> {
    topology.close().await;
    let all = events.collect::<Vec<_>>().await.into_iter();
    all.filter(|event| event.kind.address() == Some(address)).collect()
}

fn position(events: &[Event], what: &str, wanted: impl Fn(&EventKind) -> bool) -> usize {
    let position = events.iter().position(|event| wanted(&event.kind));
    assert!(position.is_some(), "{what} in {events:#?}");
    position.unwrap()
}

/// I-20, I-10, P-32: attempts to fill the pool are retried after pauses that double, and the server
/// stays known.
#[test]
fn an_overloaded_server_keeps_its_state_and_the_filling_of_its_pool_pauses() {
    let sim = simulation(1);
    sim.run_for(Duration::from_secs(20));
    let server = sim.status().primary().unwrap().id;
    // Admits only the first connection, which is the monitor's.
    let is_over = limit(&sim, server, 1, Verdict::Reset);
    let (topology, events) = start(&sim, "minPoolSize=3");
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        pass(&sim, MEASURED).await;
        assert_eq!(pool.stats().opened, 0, "{pool:?}");
        let server = primary(&topology).await;
        assert_eq!(server.server_type(), ServerType::RsPrimary);
        drop(server);
        is_over.store(true, Ordering::Relaxed);
        pass(&sim, MEASURED).await;
        assert_eq!(pool.stats().idle, 3, "{pool:?}");
        let events = close(topology, events, pool.address()).await;
        let failed: Vec<_> = events.iter().filter_map(failure).collect();
        // Two attempts start at once, later ones after pauses of up to 1 s, 2 s, 4 s, 8 s and 10 s.
        assert!((3..=8).contains(&failed.len()), "{} attempts", failed.len());
        assert!(failed.iter().all(|is_overload| *is_overload));
        let cleared = |event: &&Event| matches!(event.kind, EventKind::PoolCleared { .. });
        assert_eq!(events.iter().filter(cleared).count(), 0);
    });
}

#[test]
fn a_check_out_does_not_wait_for_a_slow_attempt_that_fills_the_pool() {
    // A check-out opens a connection instead of waiting for the worker's attempt (F-69b, P-31).
    let sim = simulation(3);
    sim.run_for(Duration::from_secs(20));
    let server = sim.status().primary().unwrap().id;
    // Admits only the first connection, which is the monitor's.
    let is_over = limit(&sim, server, 1, Verdict::Cut);
    let (topology, _events) = start(&sim, "minPoolSize=1&connectTimeoutMS=10000");
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        pass(&sim, Duration::from_secs(1)).await;
        assert_eq!(pool.stats().pending, 1, "{pool:?}");
        is_over.store(true, Ordering::Relaxed);
        let before = sim.now();
        let connection = pool.check_out().await.unwrap();
        let waited = sim.now().since(before);
        assert!(waited < Duration::from_secs(1), "after {waited:?}");
        assert_eq!(connection.id().driver, 2);
        drop(connection);
        topology.close().await;
    });
}

/// Returns whether the error of a failed attempt has the overload label, or `None` for other
/// events.
fn failure(event: &Event) -> Option<bool> {
    match &event.kind {
        EventKind::ConnectionClosed { reason: ConnectionClosedReason::Error, error, .. } => {
            Some(error.as_ref()?.has_label("SystemOverloadedError"))
        }
        _ => None,
    }
}

/// I-20, I-12, F-66: corresponds to the unified test "Server error on minPoolSize background
/// creation".
#[test]
fn a_refused_handshake_for_the_minimum_clears_the_pool_and_marks_the_server_unknown() {
    let sim = simulation(2);
    sim.run_for(Duration::from_secs(20));
    let mut fail = FailCommand::default();
    // Skips the first hello, which is the monitor's.
    fail.mode = Mode::Skip(1);
    fail.commands = vec!["hello".into(), "isMaster".into()];
    fail.error_code = Some(91);
    let status = sim.status();
    let (server, address) = status.primary().map(|own| (own.id, own.address.clone())).unwrap();
    let set = |fail| sim.apply(&Action::FailPoint(Target::Member(server), fail));
    set(Some(fail)).unwrap();
    let (topology, events) = start(&sim, "minPoolSize=2&heartbeatFrequencyMS=60000");
    sim.block_on(async {
        pass(&sim, Duration::from_secs(5)).await;
        let server_type = |address| {
            let snapshot = topology.snapshot();
            snapshot.description().server(address).unwrap().server_type
        };
        assert_eq!(server_type(&address), ServerType::Unknown);
        set(None).unwrap();
        pass(&sim, MEASURED * 4).await;
        assert_eq!(primary(&topology).await.pool().stats().idle, 2);
        let events = close(topology, events, &address).await;
        let lost = position(&events, "Unknown", |kind| {
            matches!(kind, EventKind::ServerDescriptionChanged { previous, new, .. }
                if new.server_type == ServerType::Unknown
                    && previous.server_type != ServerType::Unknown)
        });
        let cleared = position(&events, "a clear", |kind| {
            matches!(kind, EventKind::PoolCleared { clear, .. } if clear.cause.code() == Some(91))
        });
        let closed = position(&events, "a closed connection", |kind| {
            matches!(kind, EventKind::ConnectionClosed { error: Some(error), .. }
                if error.code() == Some(91) && error.labels().len() == 0)
        });
        assert!(lost < cleared && cleared < closed, "{events:#?}");
        let ready = |event: &&Event| matches!(event.kind, EventKind::PoolReady { .. });
        assert_eq!(events.iter().filter(ready).count(), 2);
    });
}

#[test]
fn an_idle_connection_expires_before_the_pool_is_filled() {
    // The worker's timer is armed for the filling, which `spread` delays (P-30).
    let sim = simulation(1);
    sim.run_for(Duration::from_secs(20));
    let uri = format!("{}&minPoolSize=2&maxIdleTimeMS=500", sim.uri());
    let mut options = Options::parse(&uri).unwrap();
    options.spread = Duration::from_secs(600);
    let builder = TopologyBuilder::new(options).pools(Pools::new());
    let topology = builder.start(sim.runtime()).unwrap();
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        drop(pool.check_out().await.unwrap());
        pass(&sim, Duration::from_millis(501)).await;
        let stats = pool.stats();
        assert_eq!((stats.opened, stats.closed), (1, 1), "{stats:?}");
    });
}
