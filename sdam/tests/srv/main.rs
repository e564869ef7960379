//! SRV seed lists and SRV polling, with the simulated DNS in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod failures;
mod lifecycle;
mod polling;
mod scanning;
mod seeds;
mod world;
