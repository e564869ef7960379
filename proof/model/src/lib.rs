//! Invariants of a [`Deployment`](sdam_core::deployment::Deployment), and a search for histories
//! that violate them.
//!
//! A [`World`](world::World) is a deployment with test doubles for its connections, pools and
//! readers. It takes [steps](step::Step), performs the outputs, and returns the first violated
//! invariant. [`search`](search::search) takes every step of an alphabet in every reachable state;
//! the fuzz target `deployment` takes random steps.

pub mod alphabet;
pub mod oracle;
pub mod search;
pub mod start;
pub mod step;
pub mod world;

mod balanced;
mod drive;
mod follow;
mod inline;
mod timers;
mod watch;
