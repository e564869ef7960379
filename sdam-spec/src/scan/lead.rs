//! Leading a topology to a given description by one scan.

use std::{sync::Arc, time::Duration};

use sdam::scan::ScanTopology;
use sdam_core::{
    options::Options,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_transport::clock::Clock;

use super::world::{World, always, ready};
use crate::running::deployment::{
    compare, encode, extras, greeting, hello, is_asked, is_hinted, members, seeded,
};

/// Makes a topology in `world` and leads it to `wanted`: the same types, round-trip times and tags,
/// and whatever else staleness is computed from. Says how long the scan took, too.
///
/// Servers that are Unknown cannot be reached. Those that might be the primary are Unknown, too: a
/// scan checks them like any other (SDAM: "Scanning order"), so none of them outlives it.
///
/// A scan checks one server after the other, so the times of updates are not those that are wanted.
/// With a primary only the time between a server's last write and its update counts (Max Staleness:
/// "Estimating Staleness"), so last writes are moved by as much. Without one only last writes
/// count, and they are as wanted.
///
/// # Errors
///
/// If it ends up elsewhere.
pub(super) fn lead_to(
    world: &World,
    wanted: &TopologyDescription,
    options: Options,
) -> Result<(ScanTopology, Duration), String> {
    let wanted = scannable(wanted);
    let moves = wanted.primary().is_some();
    let mut farewell = greeting(25);
    farewell.insert("isWritablePrimary", true);
    for extra in &extras(&wanted) {
        world.serve(extra, Duration::ZERO, always(Some(encode(&farewell)?)));
    }
    // No update may come sooner than it should.
    let updates = wanted.servers().iter();
    let updates = updates.filter_map(|server| server.last_update_time);
    world.advance_to(updates.max().unwrap_or_default());
    let members = members(&wanted);
    for server in wanted.servers().iter().filter(|server| is_asked(server)) {
        let (own, members) = (Arc::clone(server), members.clone());
        let say = move |update| encode(&hello(&updated(&own, update, moves)?, &members)?);
        say(world.now())?;
        let delay = server.rtt.map_or(Duration::ZERO, |rtt| rtt.average);
        let words = Arc::new(move |update| say(update).ok());
        world.serve(&server.address, delay, words);
    }
    let mut topology = world.start(seeded(options, &wanted), |builder| builder)?;
    let began = world.now();
    ready(topology.scan())?;
    let lasted = world.now().since(began);
    let reached = topology.description();
    let mut expected = Vec::new();
    for server in wanted.servers() {
        let actual = reached.server(&server.address);
        let actual = actual.filter(|_| is_asked(server));
        expected.push(match actual.and_then(|actual| actual.last_update_time) {
            Some(update) => updated(server, update, moves)?,
            None => (**server).clone(),
        });
    }
    let expected = TopologyDescription::new(wanted.topology_type(), expected);
    compare(&expected, reached)?;
    Ok((topology, lasted))
}

/// What is left of `wanted` after a scan.
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

/// The server as it is wanted, but updated at `update`; then its last write `moves`, too.
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
