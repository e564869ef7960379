//! Models of the state shared by threads, run through every interleaving by `cargo xtask loom`.

mod channel;
mod queue;
