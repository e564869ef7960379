//! The difference between the clocks of two clients.
//!
//! Each hello reply contains the server's time. The smallest difference between that time and the
//! arrival of the reply is the difference between the client's and the server's clocks plus the
//! minimum time in transit. If the smallest differences of two clients for the same server are
//! compared, the server's clock and the minimum transit time cancel out. If the replies do not
//! contain the time, only the changes of `topologyVersion` that both clients saw can be compared.
//! These changes are weaker evidence, because a client may also see a change late for other
//! reasons.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, UNIX_EPOCH},
};

use bson::RawDocument;
use sdam_core::{
    event::{Event, EventKind},
    ids::TopologyVersion,
};

use crate::recording::Recording;

/// The minimum number of changes that both clients must have seen for an estimate to be possible.
const ENOUGH: usize = 3;

/// The clock of a client.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Clock {
    /// The clock with which the other clocks are compared.
    Reference,
    /// The clock is ahead of the reference clock by about `nanos` nanoseconds.
    Ahead { nanos: i64, uncertainty: Duration, evidence: Evidence },
    /// The recordings have no common data from which to estimate the difference.
    Unknown,
}

/// The basis of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The estimate is based on the times in the replies of this many servers.
    ServerTimes(usize),
    /// The estimate is based on this many changes of `topologyVersion`.
    Changes(usize),
}

impl Clock {
    /// Estimates the clock of `recording` relative to the clock of `reference`.
    pub(super) fn beside(reference: &Recording, recording: &Recording) -> Self {
        if std::ptr::eq(reference, recording) {
            return Self::Reference;
        }
        let (one, other) = (Sightings::of(reference), Sightings::of(recording));
        let estimate = by_server_times(&one, &other).or_else(|| by_changes(&one, &other));
        estimate.unwrap_or(Self::Unknown)
    }

    /// Returns the nanoseconds to add to the recording's times to convert them to the reference
    /// clock.
    pub(super) fn correction(&self) -> i64 {
        match self {
            Self::Ahead { nanos, .. } => nanos.saturating_neg(),
            Self::Reference | Self::Unknown => 0,
        }
    }
}

/// The data from a recording that is needed to estimate its clock. Times are nanoseconds since
/// 1970.
#[derive(Default)]
struct Sightings {
    /// For each server, the smallest difference between the client's clock and the server's, and
    /// the smallest round-trip time.
    servers: BTreeMap<String, (i64, Option<Duration>)>,
    /// The time at which each topology version was first seen, except for each server's first
    /// version.
    versions: HashMap<(String, TopologyVersion), i64>,
}

impl Sightings {
    fn of(recording: &Recording) -> Self {
        let mut sightings = Self::default();
        for event in &recording.events {
            let wall = recording.wall(event.at);
            let wall = wall.and_then(|wall| wall.duration_since(UNIX_EPOCH).ok());
            if let Some(at) = wall.and_then(|wall| i64::try_from(wall.as_nanos()).ok()) {
                sightings.observe(at, event);
            }
        }
        sightings
    }

    fn observe(&mut self, at: i64, event: &Event) {
        match &event.kind {
            EventKind::ServerHeartbeatSucceeded { heartbeat, reply, .. } => {
                let address = heartbeat.address.to_string();
                if let Some(millis) = local_time(reply) {
                    let difference = at.saturating_sub(millis.saturating_mul(1_000_000));
                    let (least, _) = self.servers.entry(address).or_insert((difference, None));
                    *least = difference.min(*least);
                }
            }
            EventKind::RttMeasured { address, rtt, .. } => {
                if let Some((_, least)) = self.servers.get_mut(address.as_str()) {
                    let rtt = rtt.average;
                    *least = Some(least.map_or(rtt, |least| least.min(rtt)));
                }
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                if let (Some(old), Some(version)) =
                    (previous.topology_version, new.topology_version)
                    && old != version
                {
                    let key = (new.address.to_string(), version);
                    self.versions.entry(key).or_insert(at);
                }
            }
            _ => {}
        }
    }
}

/// Returns the server's time in a hello reply, in milliseconds since 1970.
fn local_time(reply: &[u8]) -> Option<i64> {
    let reply = RawDocument::from_bytes(reply).ok()?;
    let time = reply.get_datetime("localTime").ok()?;
    Some(time.timestamp_millis())
}

/// Estimates the difference between the clocks from the replies of a single server, the one that
/// both clients reach fastest.
fn by_server_times(one: &Sightings, other: &Sightings) -> Option<Clock> {
    let common = one.servers.iter().filter_map(|(address, (here, rtt))| {
        let (there, other_rtt) = other.servers.get(address)?;
        // A reply travels for at most one round trip, and the server's time in it is rounded to a
        // millisecond.
        let trip = rtt.unwrap_or_default() + other_rtt.unwrap_or_default();
        Some((trip + Duration::from_millis(1), there.saturating_sub(*here)))
    });
    let common: Vec<_> = common.collect();
    let (uncertainty, nanos) = common.iter().min_by_key(|(uncertainty, _)| *uncertainty)?;
    Some(Clock::Ahead {
        nanos: *nanos,
        uncertainty: *uncertainty,
        evidence: Evidence::ServerTimes(common.len()),
    })
}

/// Estimates the difference between the clocks as the median difference between the times at which
/// the two clients saw the same change of `topologyVersion`.
fn by_changes(one: &Sightings, other: &Sightings) -> Option<Clock> {
    let differences = one.versions.iter().filter_map(|(version, here)| {
        let there = other.versions.get(version)?;
        Some(there.saturating_sub(*here))
    });
    let mut differences: Vec<i64> = differences.collect();
    differences.sort_unstable();
    let (least, most) = (differences.first()?, differences.last()?);
    (differences.len() >= ENOUGH).then(|| Clock::Ahead {
        nanos: differences[differences.len() / 2],
        uncertainty: Duration::from_nanos(most.abs_diff(*least)),
        evidence: Evidence::Changes(differences.len()),
    })
}
