//! Brings a topology to a given description, using only the replies of its servers and the times of
//! these replies.

use std::time::Duration;

use bson::doc;

use sdam_core::{
    address::ServerAddress, options::Options, time::Instant, topology::TopologyDescription,
};

use super::harness::Harness;
use crate::running::Topology;
use crate::running::deployment::{
    SET_NAME, base_hello, compare, encode, extra_seeds, hello, is_checked, is_hinted, members,
    not_reached, standalone_hello, with_seeds,
};

/// The time before the first update. It is longer than any round trip, so that every check can
/// begin in time.
const LEAD_TIME: Duration = Duration::from_secs(10);

/// The beginning of a server's first check, or the reply to this check.
struct Step {
    at: Instant,
    address: ServerAddress,
    /// The reply. If it is `None`, the connection opens and the check begins.
    reply: Option<Vec<u8>>,
}

/// Starts a topology on `harness`, which must be [slow](Harness::slow), and brings it to `target`.
/// Types, round-trip times, tags, last writes and the intervals between updates become those of
/// `target`.
///
/// # Errors
///
/// If the resulting description differs from `target`.
pub(super) fn drive_to(
    harness: &Harness<'_>,
    target: &TopologyDescription,
    options: Options,
) -> Result<Topology, String> {
    let topology = harness.start(with_seeds(options, target), |builder| builder)?;
    for extra in &extra_seeds(target) {
        join_and_leave(harness, extra, target)?;
    }
    let zero = harness.now() + LEAD_TIME;
    for step in steps(target, zero)? {
        harness.clock.advance_to(step.at);
        harness.settle();
        match &step.reply {
            None => harness.servers.admit(&step.address)?,
            Some(reply) => harness.servers.answer(&step.address, Some(reply))?,
        }
        harness.settle();
    }
    let reached = topology.snapshot().description().clone();
    compare(target, &reached)?;
    compare_updates(target, &reached, zero)?;
    Ok(topology)
}

/// Makes the server at `address` reply as a member of the set, and then as a server that is not in
/// a set.
fn join_and_leave(
    harness: &Harness<'_>,
    address: &ServerAddress,
    target: &TopologyDescription,
) -> Result<(), String> {
    harness.servers.admit(address)?;
    harness.settle();
    for hinted in target.servers().iter().filter(|server| is_hinted(server)) {
        let mut hinting_reply = base_hello(25);
        hinting_reply.extend(doc! {
            "secondary": true,
            "setName": SET_NAME,
            "hosts": [address.to_string(), hinted.address.to_string()],
            "primary": hinted.address.to_string(),
        });
        harness.answer(address, Some(&encode(&hinting_reply)?))?;
    }
    harness.answer(address, Some(&standalone_hello(25)?))
}

/// Plans the first check of each server that is checked in `target`. Every check begins one round
/// trip before its update. The update times in `target` are relative to `zero`.
fn steps(target: &TopologyDescription, zero: Instant) -> Result<Vec<Step>, String> {
    let members = members(target);
    let mut steps = Vec::new();
    for server in target.servers().iter().filter(|server| is_checked(server)) {
        let update = server.last_update_time.unwrap_or(Instant::EPOCH);
        let at = zero + update.since(Instant::EPOCH);
        let rtt = server.rtt.map_or(Duration::ZERO, |rtt| rtt.average);
        let address = server.address.clone();
        steps.push(Step { at: at - rtt, address: address.clone(), reply: None });
        steps.push(Step { at, address, reply: Some(encode(&hello(server, &members)?)?) });
    }
    steps.sort_by_key(|step| step.at);
    Ok(steps)
}

/// Compares the update times with those in `target`, which are relative to `zero`.
fn compare_updates(
    target: &TopologyDescription,
    actual: &TopologyDescription,
    zero: Instant,
) -> Result<(), String> {
    for (target, actual) in target.servers().iter().zip(actual.servers()) {
        let expected = target.last_update_time.filter(|_| is_checked(target));
        let expected = expected.map(|update| zero + update.since(Instant::EPOCH));
        if expected.is_some() && actual.last_update_time != expected {
            return Err(not_reached(&format!(
                "{} was updated at {:?}, expected {expected:?}",
                actual.address, actual.last_update_time
            )));
        }
    }
    Ok(())
}
