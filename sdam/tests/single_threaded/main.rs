//! Single-threaded mode with a scripted transport, in virtual time, where no future is ever
//! pending.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod authenticating;
mod balanced;
mod cancelling;
mod connections;
mod errors;
mod events;
mod harness;
mod panics;
mod properties;
mod scanning;
mod selecting;
mod simulated;
