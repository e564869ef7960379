//! Selection from a running topology: what waits, what fails, and what it costs.
//!
//! Servers have their answers ready behind the transport seam, and time is virtual, so that
//! everything here happens exactly when it is said to.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod allocations;
mod configured;
mod pools;
mod prose;
mod runtime;
mod scope;
mod timeouts;
mod waiting;
mod world;
