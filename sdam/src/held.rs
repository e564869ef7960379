//! Panics of connection pools, held back until everything else is done.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The first panic of a pool, on its way to whoever brought it about.
///
/// A pool that panics half-way through a list of effects must not cost the others theirs: they would
/// be lost for good, since no machine asks for the same thing twice.
#[derive(Default)]
pub(crate) struct HeldPanic(Option<Box<dyn Any + Send>>);

impl HeldPanic {
    /// Calls a pool; `None` if it panicked.
    ///
    /// What the pool leaves half done is its own: nothing of it is looked at here.
    pub(crate) fn catch<T>(&mut self, call: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(call))
            .map_err(|panic| self.0.get_or_insert(panic))
            .ok()
    }

    /// Lets the panic go on, unless there was none or the thread is panicking already, which would
    /// end the process.
    pub(crate) fn resume(self) {
        if let Some(panic) = self.0
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl fmt::Debug for HeldPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldPanic").field(&self.0.is_some()).finish()
    }
}
