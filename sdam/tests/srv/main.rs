//! SRV seed lists and SRV polling, with the simulated DNS in virtual time.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod failures;
mod lifecycle;
mod polling;
mod scanning;
mod seeds;
mod world;
