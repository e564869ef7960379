//! Loom models of the state that threads share; `cargo xtask loom` runs every interleaving.

mod checks;
mod control;
mod harness;
mod lanes;
mod publication;
mod shutdown;
mod waiters;
