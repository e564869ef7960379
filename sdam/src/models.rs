//! Loom models of the state that threads share; `cargo xtask loom` runs every interleaving.

mod checks;
mod demand;
mod lanes;
mod mailbox;
mod publication;
mod shutdown;
mod world;
