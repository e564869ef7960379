//! Checks of the rules for connection pools (CMAP).

use std::collections::BTreeMap;

use sdam_core::{
    event::{Event, EventKind},
    ids::ServerId,
    time::Instant,
};
use sdam_pool::Pool;
use sdam_sim::oracle::{Oracle, Violation};

use crate::record::{RunRecord, lock};

/// The state of a connection, derived from its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Idle,
    InUse,
}

/// Checks the counters of a pool at one moment.
pub(crate) fn check_numbers(record: &RunRecord, pool: &Pool) {
    let (stats, options) = (pool.stats(), pool.options());
    let total = stats.idle + stats.in_use + stats.pending;
    let max = match options.max_pool_size {
        0 => usize::MAX,
        max => max as usize,
    };
    let complaint = if stats.pending > options.max_connecting as usize {
        "more connections are being established than maxConnecting"
    } else if total > max {
        "there are more connections than maxPoolSize"
    } else if stats.opened != stats.closed + (stats.idle + stats.in_use) as u64 {
        "the connections do not add up"
    } else if stats.waiting > 0 && stats.idle > 0 {
        "a check-out is waiting beside an idle connection"
    } else if stats.waiting > 0 && stats.is_ready && stats.pending == 0 && total < max {
        "a check-out is waiting, but no connection is being established"
    } else {
        return;
    };
    record.violated(Oracle::Pools, format!("{complaint}: {stats:?}, {options:?}"));
}

/// Checks that all pools are empty after the topology was closed.
pub(crate) fn check_end(record: &RunRecord, now: Instant) -> Result<(), Violation> {
    for pool in &*lock(&record.connecting) {
        let stats = pool.stats();
        let left = stats.idle + stats.in_use + stats.pending + stats.waiting;
        Oracle::Leaks.ensure(now, left == 0 && !stats.is_ready, || {
            format!("a pool is not empty after it was closed: {stats:?}")
        })?;
    }
    Ok(())
}

/// Checks that the events of each connection and of each check-out are in order. Also checks that,
/// except for `unended` check-outs, all connections and check-outs end before the topology is
/// closed (J-26).
pub(crate) fn check_events(events: &[Event], unended: u64) -> Result<(), Violation> {
    let mut connections = BTreeMap::new();
    let mut started = BTreeMap::new();
    for event in events {
        let step = match &event.kind {
            EventKind::TopologyClosed => {
                let left = connections.len() as u64 + started.values().sum::<u64>();
                Oracle::Close.ensure(event.at, left == unended, || {
                    format!(
                        "J-26: {unended} ends count as dropped, but these are missing: \
                         connections {connections:?}, check-outs {started:?}"
                    )
                })?;
                continue;
            }
            EventKind::ConnectionCreated { server, connection, .. } => {
                (*server, connection.driver, None, Some(State::Pending))
            }
            EventKind::ConnectionReady { server, connection, .. } => {
                (*server, connection.driver, Some(State::Pending), Some(State::Idle))
            }
            EventKind::ConnectionCheckedOut { server, connection, .. } => {
                check_out_ends(&mut started, *server, event)?;
                (*server, connection.driver, Some(State::Idle), Some(State::InUse))
            }
            EventKind::ConnectionCheckedIn { server, connection, .. } => {
                (*server, connection.driver, Some(State::InUse), Some(State::Idle))
            }
            EventKind::ConnectionClosed { server, connection, .. } => {
                let before = connections.remove(&(*server, connection.driver));
                if matches!(before, None | Some(State::InUse)) {
                    return Err(out_of_order(event, before));
                }
                continue;
            }
            EventKind::ConnectionCheckOutStarted { server, .. } => {
                *started.entry(*server).or_insert(0_u64) += 1;
                continue;
            }
            EventKind::ConnectionCheckOutFailed { server, .. } => {
                check_out_ends(&mut started, *server, event)?;
                continue;
            }
            _ => continue,
        };
        let (server, number, expected, next) = step;
        let before = connections.get(&(server, number)).copied();
        if before != expected {
            return Err(out_of_order(event, before));
        }
        connections.extend(next.map(|state| ((server, number), state)));
    }
    Ok(())
}

fn check_out_ends(
    started: &mut BTreeMap<ServerId, u64>,
    server: ServerId,
    event: &Event,
) -> Result<(), Violation> {
    let started = started.entry(server).or_default();
    if *started == 0 {
        return Err(out_of_order(event, None));
    }
    *started -= 1;
    Ok(())
}

fn out_of_order(event: &Event, before: Option<State>) -> Violation {
    let message = format!("{:?} follows the state {before:?}", event.kind);
    Oracle::Pools.violated(event.at, message)
}
