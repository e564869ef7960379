//! The locks and threads of timers and of blocking races. With `--cfg sdam_loom` they come from
//! loom, so that models explore every interleaving of the real code.

#[cfg(not(all(test, sdam_loom)))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(all(test, sdam_loom))]
pub(crate) use loom::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
