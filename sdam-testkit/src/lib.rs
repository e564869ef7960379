//! Conformance suites for runtimes and connection pools, and servers, clocks, pools and spawners
//! that tests control.
//!
//! | item | purpose |
//! | --- | --- |
//! | [`conformance`] | tests that a runtime or a pool keeps the contracts of its traits |
//! | [`ManualClock`] | a clock that tests advance |
//! | [`Pace`] | advances a clock for real sockets, but not while a thread waits for a processor |
//! | [`Servers`] | a transport without a network, to servers whose replies tests set |
//! | [`RecordingPools`] | connection pools that record the topology's calls and can panic |
//! | [`HeldTasks`], [`DroppedTasks`] | spawners that keep tasks until they are taken, or drop them |
//!
//! The crate does not depend on the engine, so it can be used in tests of every crate above the
//! transport. `sdam-sim` simulates whole deployments.

pub mod conformance;
mod pools;
mod runtime;
mod servers;
#[cfg(test)]
mod tests;

pub use self::{
    pools::{RecordedCall, RecordingPool, RecordingPools},
    runtime::{DroppedTasks, HeldTasks, ManualClock, Pace},
    servers::{Reply, Request, Server, Servers, fixed_reply, member, mongos, reply_to},
};
