//! A server that limits the rate of new connections (the prose test "Connection Pool Backpressure"
//! of Server Discovery and Monitoring).
//!
//! The simulated server imitates `ingressConnectionEstablishmentRateLimiterEnabled` of MongoDB 7.0
//! and newer. The transports do not use TLS, so the connections end before or during hello.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use sdam::{Error, Event, EventKind, Interest, ServerType, Topology};
use sdam_core::event::CheckOutFailure;
use sdam_events::channel::EventStream;
use sdam_pool::Pool;
use sdam_sim::{
    MemberId,
    runtime::{Direction, Sim, Verdict},
};

use super::{observed, pass, primary, run_ping, simulation};

/// The number of concurrent operations, and of connections that may be opened at once.
const OPERATIONS: usize = 100;
/// The number of connections that the server admits (`BurstCapacitySecs` times `RatePerSec`).
const ADMITTED: usize = 20;
/// The duration of an operation, which is so long that no operation reuses another's connection.
const OPERATION: Duration = Duration::from_secs(2);
const LABELS: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

/// Returns whether these bytes are the first message of a connection.
pub(super) fn is_handshake(bytes: &[u8]) -> bool {
    bytes.windows(8).any(|bytes| bytes == b"\x03client\0")
}

/// Admits the next `admitted` handshakes with `member`, and applies `verdict` to all further ones
/// until the returned flag is set.
pub(super) fn limit(
    sim: &Sim,
    member: MemberId,
    admitted: usize,
    verdict: Verdict,
) -> Arc<AtomicBool> {
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

fn start(sim: &Sim) -> (Topology<Pool>, EventStream) {
    let options = "maxConnecting=100&connectTimeoutMS=1000&heartbeatFrequencyMS=500";
    observed(sim, options, Interest::POOLS.union(Interest::DESCRIPTIONS))
}

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
    let (topology, mut events) = start(&sim);
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
    let events: Vec<Event> = sim.block_on(events.by_ref().collect());
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
