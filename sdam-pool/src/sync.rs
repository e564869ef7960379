//! The lock of the pool. A build with `--cfg sdam_loom` takes it from loom, so that models run the
//! real code through every interleaving of its threads.

#[cfg(not(sdam_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(sdam_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
