//! Tests that the simulated deployment satisfies the conformance rules, in virtual time.

#[cfg(test)]
mod data;
#[cfg(test)]
mod elections;
#[cfg(test)]
mod exhaust;
#[cfg(test)]
mod fail_points;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod impostors;
#[cfg(test)]
mod invariants;
#[cfg(test)]
#[cfg(test)]
mod replies;
#[cfg(test)]
mod special_events;
#[cfg(test)]
mod support;
#[cfg(test)]
mod topology_version;
