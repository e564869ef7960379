//! Single-threaded mode with a scripted transport, in virtual time, where no future is ever
//! pending.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic fails the test"
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
