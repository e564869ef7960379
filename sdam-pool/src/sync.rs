//! The locks, atomics and wakers of the pool. With `--cfg sdam_loom` they come from loom, so that
//! models explore every interleaving of the real code.

#[cfg(not(all(test, sdam_loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(not(all(test, sdam_loom)))]
pub(crate) use futures::task::AtomicWaker;
#[cfg(all(test, sdam_loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(all(test, sdam_loom))]
pub(crate) use sdam_events::sync::AtomicWaker;
