//! Tests with real servers and failovers, which check the observable changes and their order.
//!
//! `SDAM_LIVE_VERSION` (4.2, 4.4, 5.0, 6.0) and `SDAM_LIVE_RUNTIME` (tokio, smol, async-std) select
//! the server and the runtime; `cargo xtask test --live-matrix` runs all supported combinations.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic fails the test")]

mod authentication;
#[cfg(feature = "client")]
mod client;
mod failover;
mod observer;
mod pools;
mod prose;
mod record;
mod runtime;
mod selecting;
#[cfg(feature = "client")]
mod silence;
mod soak;
mod tls;
