//! Brings a topology to a given description with one scan.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    options::Options,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_testkit::{Request, fixed_reply};

use super::harness::{Harness, ready};
use crate::running::ScanTopology;
use crate::running::deployment::{
    compare, encode, extra_seeds, hello, is_checked, is_hinted, members, standalone_hello,
    with_seeds,
};

/// Creates a topology in `harness` and brings it to `target`. Types, round-trip times, tags and the
/// inputs of the staleness formula become those of `target`. Also returns the duration of the scan.
///
/// Servers that are unknown in `target` are unreachable. So are possible primaries: a scan checks
/// them like other servers (SDAM: "Scanning order"), so no server is a possible primary after a
/// scan.
///
/// A scan checks servers one after another, so the times of their updates differ from those in
/// `target`. If there is a primary, only the time between a server's last write and its update
/// matters (Max Staleness: "Estimating Staleness"), so last writes are shifted by the same amount
/// as updates. If there is no primary, only last writes matter, and they are equal to those in
/// `target`.
///
/// # Errors
///
/// If the resulting description differs from `target`.
pub(super) fn drive_to(
    harness: &Harness,
    target: &TopologyDescription,
    options: Options,
) -> Result<(ScanTopology, Duration), String> {
    let target = scannable(target);
    let moves = target.primary().is_some();
    for extra in &extra_seeds(&target) {
        harness.serve(extra, Duration::ZERO, fixed_reply(Some(standalone_hello(25)?)));
    }
    // No update may be earlier than in `target`.
    let updates = target.servers().iter();
    let updates = updates.filter_map(|server| server.last_update_time);
    harness.advance_to(updates.max().unwrap_or_default());
    let members = members(&target);
    for server in target.servers().iter().filter(|server| is_checked(server)) {
        let (own, members) = (Arc::clone(server), members.clone());
        let reply_at = move |update| encode(&hello(&updated(&own, update, moves)?, &members)?);
        reply_at(harness.now())?;
        let delay = server.rtt.map_or(Duration::ZERO, |rtt| rtt.average);
        let reply = Arc::new(move |request: &Request| reply_at(request.now).ok());
        harness.serve(&server.address, delay, reply);
    }
    let mut topology = harness.start(with_seeds(options, &target), |builder| builder)?;
    let began = harness.now();
    ready(topology.scan())?;
    let lasted = harness.now().since(began);
    let reached = topology.description();
    let mut expected = Vec::new();
    for server in target.servers() {
        let actual = reached.server(&server.address);
        let actual = actual.filter(|_| is_checked(server));
        expected.push(match actual.and_then(|actual| actual.last_update_time) {
            Some(update) => updated(server, update, moves)?,
            None => (**server).clone(),
        });
    }
    let expected = TopologyDescription::new(target.topology_type(), expected);
    compare(&expected, &reached)?;
    Ok((topology, lasted))
}

/// Returns the part of `target` that a scan can produce.
fn scannable(target: &TopologyDescription) -> TopologyDescription {
    let servers = target.servers().iter().map(|server| {
        let mut server = (**server).clone();
        if is_hinted(&server) {
            server.server_type = ServerType::Unknown;
        }
        server
    });
    TopologyDescription::new(target.topology_type(), servers)
}

/// Returns `server`, which is a server of the target, with `update` as the time of its update. If
/// `moves` is true, its last write is shifted by the same amount as its update.
fn updated(
    server: &ServerDescription,
    update: Instant,
    moves: bool,
) -> Result<ServerDescription, String> {
    let mut server = server.clone();
    if let Some(last_write) = server.last_write_date.as_mut().filter(|_| moves) {
        let late = update.since(server.last_update_time.unwrap_or_default());
        let millis = late.as_millis() as u64;
        if Duration::from_millis(millis) != late {
            return Err(format!("a last write cannot be {late:?} later"));
        }
        *last_write += millis as i64;
    }
    server.last_update_time = Some(update);
    Ok(server)
}
