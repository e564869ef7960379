//! Invariants of the [`TopologyMachine`](sdam_core::machine::TopologyMachine), and a search for
//! histories that break them.
//!
//! A [`CheckedMachine`](checked::CheckedMachine) is a machine with doubles of its pools and its
//! readers. It takes [steps](step::Step), performs the effects, and returns the invariant that is
//! broken. [`search`](search::search) takes every step of an alphabet in every reachable state; the
//! fuzz target `machine` takes random steps.

pub mod alphabet;
pub mod checked;
pub mod election;
pub mod oracle;
pub mod search;
pub mod step;

mod key;
