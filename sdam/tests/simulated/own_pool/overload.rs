//! A server that limits the rate of new connections (the prose test "Connection Pool Backpressure"
//! of Server Discovery and Monitoring).
//!
//! The simulated server imitates `ingressConnectionEstablishmentRateLimiterEnabled` of MongoDB 7.0
//! and newer. The transports do not use TLS, so the connections end before or during hello.

use sdam_core::event::{CheckOutFailure, ConnectionClosedReason};

use super::*;

/// The number of concurrent operations, and of connections that may be opened at once.
const OPERATIONS: usize = 100;
/// The number of connections that the server admits (`BurstCapacitySecs` times `RatePerSec`).
const ADMITTED: usize = 20;
/// The duration of an operation, which is so long that no operation reuses another's connection.
const OPERATION: Duration = Duration::from_secs(2);
const LABELS: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

/// Returns whether these bytes are the first message of a connection.
fn is_handshake(bytes: &[u8]) -> bool {
    bytes.windows(8).any(|bytes| bytes == b"\x03client\0")
}

/// Admits the next `admitted` handshakes with `member`, and applies `verdict` to all further ones
/// until the returned flag is set.
fn limit(sim: &Sim, member: MemberId, admitted: usize, verdict: Verdict) -> Arc<AtomicBool> {
    let is_over = Arc::<AtomicBool>::default();
    let (over, mut left) = (Arc::clone(&is_over), admitted);
    sim.network().add_rule(move |frame| {
        let is_meant = frame.member == member && frame.direction == Direction::ToServer;
        if over.load(Ordering::Relaxed) || !is_meant || !is_handshake(frame.bytes) {
            return Verdict::Pass;
        }
        match left.checked_sub(1) {
            Some(rest) => {
                left = rest;
                Verdict::Pass
            }
            None => verdict,
        }
    });
    is_over
}

const EVENTS: Interest = Interest::POOLS.union(Interest::DESCRIPTIONS);

/// Checks out a connection and uses it for a while.
async fn operate(sim: &Sim, pool: &Pool) -> Result<(), Error> {
    let mut connection = pool.check_out().await?;
    run_ping(&mut connection).await?;
    pass(sim, OPERATION).await;
    Ok(())
}

/// Runs the operations while the server refuses new connections because of `overload`, and checks
/// that `expected` operations fail. The prose test requires at least 10 failures.
fn storm(seed: u64, expected: usize, overload: impl FnOnce(&Sim, MemberId)) {
    let sim = simulation(seed);
    let options = "maxConnecting=100&connectTimeoutMS=1000&heartbeatFrequencyMS=500";
    let (topology, events) = observed(&sim, options, EVENTS);
    let results = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        // Meanwhile, the monitors open their connections.
        pass(&sim, Duration::from_secs(2)).await;
        overload(&sim, sim.status().primary().unwrap().id);
        let results = join_all((0..OPERATIONS).map(|_| operate(&sim, &pool))).await;
        assert_eq!(pool.stats().in_use, 0);
        let server = primary(&topology).await;
        assert_eq!(server.server_type(), ServerType::RsPrimary);
        drop(server);
        topology.close().await;
        results
    });
    let failed: Vec<_> = results.iter().filter_map(|it| it.as_ref().err()).collect();
    assert_eq!(failed.len(), expected);
    for error in &failed {
        let has_all = LABELS.iter().all(|label| error.has_label(label));
        assert!(has_all, "{error}");
    }
    let events: Vec<Event> = sim.block_on(events.collect());
    let count = |wanted: fn(&EventKind) -> bool| {
        let events = events.iter();
        events.filter(|event| wanted(&event.kind)).count()
    };
    let is_failure = |kind: &EventKind| {
        let reason = CheckOutFailure::ConnectionError;
        matches!(kind, EventKind::ConnectionCheckOutFailed { reason: own, .. } if *own == reason)
    };
    assert_eq!(count(is_failure), failed.len());
    assert_eq!(count(|kind| matches!(kind, EventKind::PoolCleared { .. })), 0);
    let is_lost = |kind: &EventKind| {
        matches!(kind, EventKind::ServerDescriptionChanged { previous, new, .. }
            if new.server_type == ServerType::Unknown
                && previous.server_type != ServerType::Unknown)
    };
    assert_eq!(count(is_lost), 0, "no server is marked Unknown");
}

/// I-10, I-19, SDAM prose test "Connection Pool Backpressure"; CMAP prose test 5: the reason for
/// the failed check-outs is `connectionError`.
#[test]
fn connections_that_an_overloaded_server_closes_refuses_or_does_not_answer_clear_nothing() {
    // The three kinds of overload are a rate limit, a listen queue that is not served in time, and
    // a full listen queue.
    for (seed, verdict) in [(1, Verdict::Reset), (2, Verdict::Cut)] {
        storm(seed, OPERATIONS - ADMITTED, |sim, server| {
            limit(sim, server, ADMITTED, verdict);
        });
    }
    storm(3, OPERATIONS, |sim, server| sim.network().refuse(server, true));
}

/// The duration of each phase of the test. It is longer than the longest pause between two
/// attempts.
const MEASURED: Duration = Duration::from_secs(20);

/// I-20, I-10, P-32: attempts to fill the pool are retried after pauses that double, and the server
/// stays known.
#[test]
fn an_overloaded_server_keeps_its_state_and_the_filling_of_its_pool_pauses() {
    let sim = simulation(1);
    sim.run_for(Duration::from_secs(20));
    let server = sim.status().primary().unwrap().id;
    // Admits only the first connection, which is the monitor's.
    let is_over = limit(&sim, server, 1, Verdict::Reset);
    let (topology, events) = observed(&sim, "serverMonitoringMode=poll&minPoolSize=3", EVENTS);
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
        topology.close().await;
        let mut attempts = 0;
        for event in events.collect::<Vec<_>>().await {
            assert_ne!(event.kind.name(), EventName::PoolCleared);
            let EventKind::ConnectionClosed { reason, error, .. } = event.kind else { continue };
            if reason == ConnectionClosedReason::Error {
                assert!(error.unwrap().has_label(LABELS[0]));
                attempts += 1;
            }
        }
        // Two attempts start at once, later ones after pauses of up to 1 s, 2 s, 4 s, 8 s and 10 s.
        assert!((3..=8).contains(&attempts), "{attempts} attempts");
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
    let options = "serverMonitoringMode=poll&minPoolSize=1&connectTimeoutMS=10000";
    let (topology, _events) = observed(&sim, options, EVENTS);
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

#[test]
fn an_idle_connection_expires_before_the_pool_is_filled() {
    // `spread` delays the connections for `minPoolSize`, for which the worker's timer is set. The
    // worker must still wake when the idle connection expires (P-30).
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
