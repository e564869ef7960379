//! SRV records from a real name server: special names, and polling on every runtime and without
//! one.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod polling;
mod seeds;
mod world;
