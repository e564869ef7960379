//! The atomics, locks and wakers that threads share in this crate.
//!
//! They come from `std` and `futures`. A build with `--cfg sdam_loom`, which only `cargo xtask
//! loom` makes, uses loom's instead, so that models run the real code through every interleaving of
//! its threads. Atomics that only hold statistics are not replaced: they would multiply the
//! interleavings without influencing the outcome.

#[cfg(not(sdam_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(not(sdam_loom))]
pub(crate) use futures::task::AtomicWaker;
#[cfg(sdam_loom)]
pub use loom::sync::{Mutex, MutexGuard, atomic};

#[cfg(sdam_loom)]
pub use self::stand_in::{AtomicWaker, explore};

#[cfg(sdam_loom)]
mod stand_in;
