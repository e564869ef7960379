//! Models of the state that threads of this crate share, run through every interleaving by
//! `cargo xtask loom`.

mod queue;
