//! Catches panics in connection pools, and resumes them after the remaining effects have run.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The first panic of a pool, which is re-raised in the calling thread.
///
/// The remaining effects must still run after a pool panics, because the machine never requests an
/// effect a second time.
#[derive(Default)]
pub(crate) struct DeferredPanic(Option<Box<dyn Any + Send>>);

impl DeferredPanic {
    /// Calls a pool; returns `None` if it panicked.
    ///
    /// Unwind safety: after a panic, the pool's state is used only by the pool itself.
    pub(crate) fn catch<T>(&mut self, call: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic| self.0.get_or_insert(panic)).ok()
    }

    /// Takes over the panic of `other`, unless this value already holds one.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0 = self.0.take().or(other.0);
    }

    /// Re-raises the panic, unless the thread is already panicking: a second panic would abort the
    /// process.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.0
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

sdam_core::opaque!(DeferredPanic);
