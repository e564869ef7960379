//! Loom models of the state shared by threads; `cargo xtask loom` runs every interleaving.

mod harness;
mod publication;
mod shutdown;
