//! Tests that the simulated deployment satisfies the conformance rules, in virtual time.

#![cfg(test)]

mod data;
mod disturbances;
mod elections;
mod faults;
mod framing;
mod hello;
mod invariants;
mod replies;
mod special_events;
mod support;
