//! Loom models of the state shared by threads; `cargo xtask loom` runs every interleaving.

mod checks;
mod handles;
mod harness;
mod lanes;
mod orders;
mod publication;
mod shutdown;
mod tasks;
mod waiters;
