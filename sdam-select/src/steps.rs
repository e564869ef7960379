//! Selection, in one call or step by step.

use core::time::Duration;

use sdam_core::{
    options::SelectionStrategy, server::ServerDescription, topology::TopologyDescription,
};
use smallvec::SmallVec;

use crate::{
    candidate::{Candidate, Candidates},
    criteria::{Criteria, CriteriaError},
    rule::Rule,
    settings::Settings,
};

/// How many servers a selection can look at without allocating; as many as a topology has by
/// default at most.
const INLINE: usize = 1024;

/// Selects a server, or says that none is suitable yet (Server Selection: "Multi-threaded or
/// asynchronous server selection", one round of its loop).
///
/// `load` tells how many operations are in progress on a server and is asked about at most two
/// servers; `random` is 64 random bits. Nothing is allocated, unless there are more than 1024 servers
/// or a [`Selector`](crate::candidate::Selector) and more than eight suitable servers.
///
/// Whether the topology is compatible is for the caller to check first
/// ([`TopologyDescription::compatibility_error`]): that error is about the topology, not about the
/// criteria.
///
/// # Errors
///
/// If no server could ever meet the criteria, so that waiting would be in vain.
pub fn choose<'t>(
    topology: &'t TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
    load: impl Fn(Candidate<'t>) -> u32,
    random: u64,
) -> Result<Option<Candidate<'t>>, CriteriaError> {
    let rule = Rule::new(topology, settings, criteria)?;
    if settings.selector.is_some() || criteria.selector().is_some() {
        let suitable = narrow(rule_candidates(topology, &rule), settings, criteria);
        let latencies = suitable.iter().map(|candidate| latency(candidate.server));
        let at = |index: usize| suitable.get(index).copied();
        return Ok(pick_in_window(latencies, at, settings, load, random));
    }
    let latencies = topology.servers().iter().map(|server| {
        if rule.admits(server) {
            latency(server)
        } else {
            UNSUITABLE
        }
    });
    let at = |index| {
        let server = topology.servers().get(index)?;
        Some(Candidate { index, server })
    };
    Ok(pick_in_window(latencies, at, settings, load, random))
}

/// The servers that may serve the operation, whatever their latency: by topology type, mode,
/// staleness, tags and addresses to avoid, then by the selectors (L-13).
///
/// # Errors
///
/// As [`choose`].
pub fn suitable<'t>(
    topology: &'t TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
) -> Result<Candidates<'t>, CriteriaError> {
    let rule = Rule::new(topology, settings, criteria)?;
    Ok(narrow(rule_candidates(topology, &rule), settings, criteria))
}

/// Those of `suitable` that are at most `threshold` slower than the fastest of them, by average
/// round-trip time and inclusive (Server Selection: "Selecting servers within the latency window").
pub fn window<'t>(suitable: &Candidates<'t>, threshold: Duration) -> Candidates<'t> {
    let mut window = suitable.clone();
    let fastest = window
        .iter()
        .map(|candidate| latency(candidate.server))
        .min();
    let limit = latency_limit(fastest.unwrap_or_default(), threshold);
    window.retain(|candidate| latency(candidate.server) <= limit);
    window
}

/// One server of the latency window: of two different ones drawn at random the one with fewer
/// operations in progress, or, by the other strategy, one drawn at random.
pub fn pick<'t>(
    window: &Candidates<'t>,
    strategy: SelectionStrategy,
    load: impl Fn(Candidate<'t>) -> u32,
    random: u64,
) -> Option<Candidate<'t>> {
    let at = |index: usize| window.get(index).copied();
    pick_among(window.len(), at, strategy, load, random)
}

pub(crate) fn rule_candidates<'t>(
    topology: &'t TopologyDescription,
    rule: &Rule<'_>,
) -> Candidates<'t> {
    Candidates::of(topology, |server| rule.admits(server))
}

/// Lets the client's selector and then the operation's own drop what they do not want.
pub(crate) fn narrow<'t>(
    mut suitable: Candidates<'t>,
    settings: &Settings,
    criteria: &Criteria,
) -> Candidates<'t> {
    for selector in [settings.selector.as_ref(), criteria.selector()] {
        if let Some(selector) = selector
            && !suitable.is_empty()
        {
            selector.select(&mut suitable);
        }
    }
    suitable
}

/// Stands for the latency of a server that is not suitable; exceeds every limit.
const UNSUITABLE: u64 = u64::MAX;

/// The average round-trip time in nanoseconds. A server without one counts as the slowest of all.
pub(crate) fn latency(server: &ServerDescription) -> u64 {
    server.rtt.map_or(UNSUITABLE - 1, |rtt| nanos(rtt.average))
}

/// The greatest latency within the window that begins with `fastest`.
pub(crate) fn latency_limit(fastest: u64, threshold: Duration) -> u64 {
    fastest.saturating_add(nanos(threshold)).min(UNSUITABLE - 1)
}

/// In nanoseconds, less than what stands for no latency.
fn nanos(duration: Duration) -> u64 {
    // A century is longer than any window, and keeps the arithmetic within 64 bits.
    const CENTURY: u64 = 100 * 366 * 24 * 60 * 60;
    duration.as_secs().min(CENTURY) * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

/// Picks one of the servers in the latency window; `at` turns a position in `latencies` into a
/// server.
///
/// The latencies are copied, because what follows goes over them several times: descriptions lie
/// scattered in memory, the copy is dense and is counted without branching.
fn pick_in_window<'t>(
    latencies: impl Iterator<Item = u64>,
    at: impl Fn(usize) -> Option<Candidate<'t>>,
    settings: &Settings,
    load: impl Fn(Candidate<'t>) -> u32,
    random: u64,
) -> Option<Candidate<'t>> {
    let mut copy = SmallVec::<[u64; INLINE]>::new();
    copy.extend(latencies);
    let latencies = copy.as_slice();
    let fastest = latencies.iter().copied().min()?;
    let limit = latency_limit(fastest, settings.local_threshold);
    let size = latencies.iter().map(|own| usize::from(*own <= limit)).sum();
    let at = |number| at(position(latencies, limit, number)?);
    pick_among(size, at, settings.strategy, load, random)
}

/// Where the latency is that has `number` others within `limit` before it.
fn position(latencies: &[u64], limit: u64, number: usize) -> Option<usize> {
    let mut seen = 0;
    latencies.iter().position(|own| {
        seen += usize::from(*own <= limit);
        seen > number
    })
}

/// [`pick`] among the servers that `at` has for every number below `size`.
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
    // The other one is drawn from the rest, so that the two differ.
    let other = below((random >> 32) as u32, size - 1);
    let other = at(other + usize::from(other >= number))?;
    Some(if load(other) < load(one) { other } else { one })
}

/// A number below `bound`, from 32 random bits, as evenly as they allow.
fn below(random: u32, bound: usize) -> usize {
    ((u64::from(random) * bound as u64) >> 32) as usize
}

#[cfg(test)]
mod tests;
