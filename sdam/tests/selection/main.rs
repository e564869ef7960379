//! Selection from a running topology: waiting, errors and cost.
//!
//! Servers are canned replies behind the transport interface, and time is virtual, so everything
//! happens at exact times.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod allocations;
mod configured;
mod drivers;
mod harness;
mod prose;
mod runtime;
mod scope;
mod timeouts;
mod waiting;
