//! Checks that the newest known election is only replaced by a newer one.

use std::cmp::Ordering;

use sdam_core::{
    ids::ElectionTuple,
    server::ServerDescription,
    topology::{TopologyDescription, TopologyType},
};

/// The wire version (MongoDB 6.0) from which election IDs are compared before set versions.
const ELECTION_FIRST: i32 = 17;

/// Checks the newest known election after a topology change. Returns a description of the
/// violation.
pub fn violation(previous: &TopologyDescription, new: &TopologyDescription) -> Option<String> {
    let (old, max) = (previous.max_election(), new.max_election());
    let Some(primary) = new.primary() else {
        let regressed = max.election_id < old.election_id && max.set_version < old.set_version;
        return regressed.then(|| format!("max_election goes back from {old} to {max}"));
    };
    if previous.primary().is_some_and(|before| before == primary) {
        return (old != max)
            .then(|| format!("max_election changes from {old} to {max} without a new primary"));
    }
    if new.topology_type() == TopologyType::Single {
        return None;
    }
    if !is_newest(old, primary) {
        let own = primary.election;
        return Some(format!(
            "the primary {} has election {own}, but the newer {old} is known",
            primary.address
        ));
    }
    let expected = merged(old, primary);
    (max != expected).then(|| format!("max_election is {max}, expected {expected}"))
}

/// Returns whether `primary` was elected in the newest known election or a later one, by the rule
/// for its server version.
pub fn is_newest(max: ElectionTuple, primary: &ServerDescription) -> bool {
    let own = primary.election;
    let order = if primary.wire_versions.max >= ELECTION_FIRST {
        (own.election_id, own.set_version).cmp(&(max.election_id, max.set_version))
    } else if let (Some(_), Some(_), Some(_), Some(_)) =
        (own.election_id, own.set_version, max.election_id, max.set_version)
    {
        (own.set_version, own.election_id).cmp(&(max.set_version, max.election_id))
    } else {
        Ordering::Equal
    };
    order.is_ge()
}

/// Returns the newest known election after `primary` has been accepted.
fn merged(max: ElectionTuple, primary: &ServerDescription) -> ElectionTuple {
    let own = primary.election;
    if primary.wire_versions.max >= ELECTION_FIRST {
        return own;
    }
    let both = own.election_id.is_some() && own.set_version.is_some();
    ElectionTuple {
        election_id: if both { own.election_id } else { max.election_id },
        set_version: max.set_version.max(own.set_version),
    }
}
