//! Tests that the simulated deployment satisfies the conformance rules, in virtual time.

#![cfg(test)]

mod data;
mod disturbances;
mod elections;
mod exhaust;
mod fail_points;
mod faults;
mod framing;
mod impostors;
mod invariants;
mod replies;
mod special_events;
mod support;
mod topology_version;
