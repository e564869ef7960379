//! Selects a server in one call, or step by step.

use core::{cell::Cell, time::Duration};

use sdam_core::{
    options::{ConfigError, SelectionStrategy},
    server::ServerDescription,
    topology::TopologyDescription,
};
use smallvec::SmallVec;

use crate::{
    candidate::{Candidate, Candidates},
    criteria::Criteria,
    settings::Settings,
    suitability::{ServerTypes, Suitability},
};

/// The number of servers that a selection handles without allocating, which is the default maximum
/// of a topology.
const INLINE_SERVERS: usize = 1024;

/// Selects a server; returns `None` if none is suitable yet (Server Selection: "Multi-threaded or
/// asynchronous server selection", one round of its loop).
///
/// `load` returns the number of operations in progress on a server, and is called for at most two
/// servers; `random` is 64 random bits. This function allocates memory only if there are more than
/// 1024 servers, or if there is a [`Selector`](crate::candidate::Selector) and more than eight
/// servers are suitable.
///
/// The caller must first check whether the topology is compatible
/// ([`TopologyDescription::compatibility_error`]), because an incompatibility is an error of the
/// topology rather than of the criteria.
///
/// # Errors
///
/// If no server can ever meet the criteria, so that waiting would be useless.
#[doc(alias("selectServer", "getServer"))]
pub fn choose<'t>(
    topology: &'t TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
    load: impl Fn(Candidate<'t>) -> u32,
    random: u64,
) -> Result<Option<Candidate<'t>>, ConfigError> {
    let has_selector = settings.selector.is_some() || criteria.selector().is_some();
    if !has_selector && let Some(types) = ServerTypes::sufficient(topology, criteria) {
        let is_suitable = |server: &ServerDescription| types.contains(server.server_type);
        return Ok(choose_where(topology, is_suitable, settings, load, random));
    }
    if has_selector {
        let suitable = suitable(topology, settings, criteria)?;
        let latencies = suitable.iter().map(|candidate| latency(candidate.server));
        let at = |index: usize| suitable.get(index).copied();
        return Ok(pick_in_window(latencies, at, settings, load, random));
    }
    let suitability = Suitability::new(topology, settings, criteria)?;
    let is_suitable = |server: &ServerDescription| suitability.is_suitable(server);
    Ok(choose_where(topology, is_suitable, settings, load, random))
}

/// Chooses one of the servers that satisfy `is_suitable`.
fn choose_where<'t>(
    topology: &'t TopologyDescription,
    is_suitable: impl Fn(&ServerDescription) -> bool,
    settings: &Settings,
    load: impl Fn(Candidate<'t>) -> u32,
    random: u64,
) -> Option<Candidate<'t>> {
    let latencies = topology
        .servers()
        .iter()
        .map(|server| if is_suitable(server) { latency(server) } else { UNSUITABLE });
    let at = |index| {
        let server = topology.servers().get(index)?;
        Some(Candidate { index, server })
    };
    pick_in_window(latencies, at, settings, load, random)
}

/// Returns the suitable servers regardless of latency: filtered by topology type, mode, staleness,
/// tags and deprioritized addresses, then by the selectors (L-13).
///
/// # Errors
///
/// The errors of [`choose`].
pub fn suitable<'t>(
    topology: &'t TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
) -> Result<Candidates<'t>, ConfigError> {
    let suitability = Suitability::new(topology, settings, criteria)?;
    Ok(selected(topology, &suitability, settings, criteria))
}

/// Returns the servers of `suitable` whose average round-trip time exceeds the fastest one's by at
/// most `threshold` (Server Selection: "Selecting servers within the latency window").
#[doc(alias = "localThresholdMS")]
pub fn latency_window<'t>(suitable: &Candidates<'t>, threshold: Duration) -> Candidates<'t> {
    let mut window = suitable.clone();
    let fastest = window.iter().map(|candidate| latency(candidate.server)).min();
    let limit = latency_limit(fastest.unwrap_or_default(), threshold);
    window.retain(|candidate| latency(candidate.server) <= limit);
    window
}

/// Returns the suitable servers that no selector drops.
pub(crate) fn selected<'t>(
    topology: &'t TopologyDescription,
    suitability: &Suitability<'_>,
    settings: &Settings,
    criteria: &Criteria,
) -> Candidates<'t> {
    let mut suitable = Candidates::of(topology, |server| suitability.is_suitable(server));
    for selector in [settings.selector.as_ref(), criteria.selector()] {
        if let Some(selector) = selector
            && !suitable.is_empty()
        {
            selector.select(&mut suitable);
        }
    }
    suitable
}

/// The placeholder latency of an unsuitable server, which exceeds every limit.
const UNSUITABLE: u64 = u64::MAX;

/// Returns the average round-trip time in nanoseconds. A server whose average is unknown is treated
/// as the slowest.
pub(crate) fn latency(server: &ServerDescription) -> u64 {
    server.rtt.map_or(UNSUITABLE - 1, |rtt| nanos(rtt.average))
}

/// Returns the upper limit of the latency window that begins with `fastest`.
pub(crate) fn latency_limit(fastest: u64, threshold: Duration) -> u64 {
    fastest.saturating_add(nanos(threshold)).min(UNSUITABLE - 1)
}

/// Converts `duration` to nanoseconds; the result is always below the placeholder for unsuitable
/// servers.
fn nanos(duration: Duration) -> u64 {
    // A century is longer than any window, and keeps the arithmetic within 64 bits.
    const CENTURY: u64 = 100 * 366 * 24 * 60 * 60;
    duration.as_secs().min(CENTURY) * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

/// Chooses one of the servers in the latency window; `at` returns the server at an index of
/// `latencies`.
///
/// The latencies are copied for the second pass, because the descriptions are scattered in memory
/// while the copy is contiguous. The second pass overwrites the copy, without branching, with the
/// indexes of the servers in the window.
fn pick_in_window<'t>(
    latencies: impl Iterator<Item = u64>,
    at: impl Fn(usize) -> Option<Candidate<'t>>,
    settings: &Settings,
    load: impl Fn(Candidate<'t>) -> u32,
    random: u64,
) -> Option<Candidate<'t>> {
    let mut copy = SmallVec::<[u64; INLINE_SERVERS]>::new();
    let mut fastest = UNSUITABLE;
    copy.extend(latencies.inspect(|own| fastest = fastest.min(*own)));
    let limit = latency_limit(fastest, settings.local_threshold);
    let window = Cell::from_mut(copy.as_mut_slice()).as_slice_of_cells();
    let mut size = 0;
    for (index, cell) in window.iter().enumerate() {
        let is_within = cell.get() <= limit;
        if let Some(next) = window.get(size) {
            next.set(index as u64);
        }
        size += usize::from(is_within);
    }
    let at = |number: usize| at(window.get(number)?.get() as usize);
    pick_among(size, at, settings.strategy, load, random)
}

/// Chooses one of the `size` servers in the latency window. Draws two different servers at random
/// and takes the one with fewer operations in progress; with [`SelectionStrategy::Random`], takes a
/// random server. `at` returns the server with a number below `size`.
#[doc(alias("operationCount", "power of two random choices"))]
fn pick_among<'t>(
    size: usize,
    at: impl Fn(usize) -> Option<Candidate<'t>>,
    strategy: SelectionStrategy,
    load: impl Fn(Candidate<'t>) -> u32,
    random: u64,
) -> Option<Candidate<'t>> {
    if size == 0 {
        return None;
    }
    let number = below(random as u32, size);
    let one = at(number)?;
    if size == 1 || strategy == SelectionStrategy::Random {
        return Some(one);
    }
    // The second server is drawn from the others, so that the two differ.
    let other = below((random >> 32) as u32, size - 1);
    let other = at(other + usize::from(other >= number))?;
    Some(if load(other) < load(one) { other } else { one })
}

/// Returns a number below `bound` from 32 random bits, as uniformly as possible.
fn below(random: u32, bound: usize) -> usize {
    ((u64::from(random) * bound as u64) >> 32) as usize
}

#[cfg(test)]
mod tests;
