//! Selection from a running topology: waiting, errors and cost.
//!
//! Servers send fixed replies through the transport interface, and time is virtual, so everything
//! happens at exact times.

mod allocations;
mod configured;
mod drivers;
mod events;
mod harness;
mod pools;
mod prose;
mod runtime;
mod scope;
mod timeouts;
mod waiting;
