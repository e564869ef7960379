//! SRV polling at a real name server whose records change, on every runtime and without one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod polling;
mod world;
