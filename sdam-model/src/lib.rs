//! Invariants of the [`TopologyMachine`](sdam_core::machine::TopologyMachine), and ways to look for
//! a history that breaks them.
//!
//! A [`World`](world::World) is a machine with doubles of its pools and its readers. It takes
//! [steps](step::Step), carries out the effects, and says which invariant is broken.
//! [`search`](search::search) takes every step of an alphabet in every state that can be reached;
//! the fuzz target `machine` takes random ones.

pub mod alphabet;
pub mod election;
pub mod oracle;
pub mod search;
pub mod step;
pub mod world;

mod key;
