//! Models of what threads of this crate share, run through every interleaving by
//! `cargo xtask loom`.

mod checks;
mod demand;
mod lanes;
mod mailbox;
mod publication;
mod shutdown;
mod world;
