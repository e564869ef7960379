//! Checks that only known servers that do not answer are reported as silent, and that the end of
//! each silence is reported once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sdam_core::{
    event::{Event, EventKind},
    ids::ServerId,
    options::Options,
    time::Instant,
};
use sdam_sim::oracle::{Oracle, Violation};

use crate::stalls::Stalls;

/// The time for which a server must leave a request unanswered before a client without a detector
/// reports it as silent.
const PATIENCE: Duration = Duration::from_secs(1);

/// A timer that is this late tells the client that its host has stalled.
const LATE: Duration = Duration::from_millis(500);

/// Checks every report of a silent server, and returns the number of reports.
pub(crate) fn check(
    options: &Options,
    events: &[Event],
    stalls: &Stalls,
) -> Result<u64, Violation> {
    let patience = options.detector.map_or(PATIENCE, |detector| detector.floor);
    // In a stall of this length, the timer of a server that was not overdue before is due, and late.
    let noticed = options.monitor_frequency()
        + options.connect_timeout.unwrap_or_default()
        + options.spread
        + LATE;
    let mut answered = BTreeMap::<ServerId, Instant>::new();
    let mut known = BTreeSet::new();
    let mut suspected = BTreeSet::new();
    let mut count = 0;
    for Event { at, kind, .. } in events {
        let ensure = |right: bool, server: ServerId, what: &str| {
            let violation = || Oracle::Silence.violated(*at, format!("server {server} {what}"));
            if right { Ok(()) } else { Err(violation()) }
        };
        match kind {
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                answered.insert(heartbeat.server, *at);
            }
            EventKind::RttMeasured { server, .. } => {
                answered.insert(*server, *at);
            }
            EventKind::ServerDescriptionChanged { new, .. } => {
                known.remove(&new.id);
                known.extend(new.server_type.is_available().then_some(new.id));
            }
            EventKind::ServerSuspected { server, silence, .. } => {
                let last = answered.get(server).copied().unwrap_or_default();
                let quiet = at.since(last).min(*silence);
                ensure(quiet >= patience, *server, &format!("is suspected after {quiet:?}"))?;
                let last = *at - quiet;
                let is_stall = stalls.ended(*at).is_some_and(|stall| {
                    stall.end.since(stall.start) >= noticed && stall.start.since(last) < patience
                });
                ensure(!is_stall, *server, "is suspected because this host stalled")?;
                ensure(known.contains(server), *server, "is suspected and Unknown")?;
                ensure(suspected.insert(*server), *server, "is suspected twice")?;
                count += 1;
            }
            EventKind::ServerSuspicionEnded { server, .. } => {
                ensure(suspected.remove(server), *server, "was not suspected")?;
            }
            EventKind::TopologyClosed => {
                for server in &suspected {
                    ensure(false, *server, "is suspected after the end")?;
                }
            }
            _ => {}
        }
    }
    Ok(count)
}
