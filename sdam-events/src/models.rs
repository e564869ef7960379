//! Models of what threads of this crate share, run through every interleaving by
//! `cargo xtask loom`.

mod queue;
