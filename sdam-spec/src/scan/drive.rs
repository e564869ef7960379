//! Brings a topology to a given description with one scan.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    options::Options,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_testkit::{Request, always};

use super::harness::{Harness, ready};
use crate::running::ScanTopology;
use crate::running::deployment::{
    base_hello, compare, encode, extra_seeds, hello, is_checked, is_hinted, members, with_seeds,
};

/// Creates a topology in `harness` and brings it to `wanted`: the same types, round-trip times and
/// tags, and all inputs of the staleness formula. Also returns how long the scan took.
///
/// Unknown servers cannot be reached. Possible primaries are Unknown, too: a scan checks them like
/// any other server (SDAM: "Scanning order"), so none remains afterwards.
///
/// A scan checks one server after the other, so the times of updates differ from the wanted ones.
/// With a primary only the time between a server's last write and its update counts (Max
/// Staleness: "Estimating Staleness"), so last writes are moved by the same amount. Without one
/// only last writes count, and they are as wanted.
///
/// # Errors
///
/// If the result differs.
pub(super) fn drive_to(
    harness: &Harness,
    wanted: &TopologyDescription,
    options: Options,
) -> Result<(ScanTopology, Duration), String> {
    let wanted = scannable(wanted);
    let moves = wanted.primary().is_some();
    let mut leaving_reply = base_hello(25);
    leaving_reply.insert("isWritablePrimary", true);
    for extra in &extra_seeds(&wanted) {
        harness.serve(extra, Duration::ZERO, always(Some(encode(&leaving_reply)?)));
    }
    // No update may come earlier than wanted.
    let updates = wanted.servers().iter();
    let updates = updates.filter_map(|server| server.last_update_time);
    harness.advance_to(updates.max().unwrap_or_default());
    let members = members(&wanted);
    for server in wanted.servers().iter().filter(|server| is_checked(server)) {
        let (own, members) = (Arc::clone(server), members.clone());
        let reply_at = move |update| encode(&hello(&updated(&own, update, moves)?, &members)?);
        reply_at(harness.now())?;
        let delay = server.rtt.map_or(Duration::ZERO, |rtt| rtt.average);
        let reply = Arc::new(move |request: &Request| reply_at(request.now).ok());
        harness.serve(&server.address, delay, reply);
    }
    let mut topology = harness.start(with_seeds(options, &wanted), |builder| builder)?;
    let began = harness.now();
    ready(topology.scan())?;
    let lasted = harness.now().since(began);
    let reached = topology.description();
    let mut expected = Vec::new();
    for server in wanted.servers() {
        let actual = reached.server(&server.address);
        let actual = actual.filter(|_| is_checked(server));
        expected.push(match actual.and_then(|actual| actual.last_update_time) {
            Some(update) => updated(server, update, moves)?,
            None => (**server).clone(),
        });
    }
    let expected = TopologyDescription::new(wanted.topology_type(), expected);
    compare(&expected, &reached)?;
    Ok((topology, lasted))
}

/// Returns the part of `wanted` that a scan can produce.
fn scannable(wanted: &TopologyDescription) -> TopologyDescription {
    let servers = wanted.servers().iter().map(|server| {
        let mut server = (**server).clone();
        if is_hinted(&server) {
            server.server_type = ServerType::Unknown;
        }
        server
    });
    TopologyDescription::new(wanted.topology_type(), servers)
}

/// Returns the wanted server, but updated at `update`. If `moves`, its last write moves, too.
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
