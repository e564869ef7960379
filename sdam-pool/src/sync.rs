//! The locks, atomics and wakers of the pool. A build with `--cfg sdam_loom` takes them from loom,
//! so that models run the real code through every interleaving of its threads.

#[cfg(not(all(test, sdam_loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(not(all(test, sdam_loom)))]
pub(crate) use futures::task::AtomicWaker;
#[cfg(all(test, sdam_loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(all(test, sdam_loom))]
pub(crate) use sdam_events::sync::AtomicWaker;
