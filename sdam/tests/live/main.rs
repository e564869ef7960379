//! Real servers, real failovers: what a person would see, in the order in which it must happen.
//!
//! `SDAM_LIVE_VERSION` (4.2, 4.4, 5.0, 6.0) and `SDAM_LIVE_RUNTIME` (tokio, smol, async-std) choose
//! what the tests run against; `cargo xtask test --live-matrix` runs all that make sense.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod failover;
mod membership;
mod observer;
mod prose;
mod runtime;
mod selecting;
