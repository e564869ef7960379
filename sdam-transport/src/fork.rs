//! Detects `fork`, so that a child process can leave inherited sockets alone.
//!
//! A child process shares its parent's sockets and the poller of its parent's runtime. If the child
//! used or closed the sockets, the parent's connections would break.

use std::mem;

/// Detects whether the process has been forked since the guard was created.
///
/// Detects only calls of `fork` in the system's C library, and only on Unix.
#[derive(Clone, Debug)]
pub struct ForkGuard(forkguard::Guard);

impl ForkGuard {
    /// Creates a guard for the current process.
    pub fn current() -> Self {
        Self(forkguard::new())
    }

    /// Returns whether this process is a forked child of the one that created the guard. The check
    /// takes about a nanosecond.
    #[inline]
    pub fn is_forked(&self) -> bool {
        // A guard reports a fork only once, so this queries a copy of it.
        self.0.clone().detected_fork()
    }
}

/// A value that a forked process does not drop, such as a socket.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    /// The value; `None` only while this is dropped.
    value: Option<T>,
    guard: ForkGuard,
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), guard: ForkGuard::current() }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.guard.is_forked()
    }

    #[expect(clippy::expect_used, reason = "only `drop` takes the value")]
    pub(crate) fn get(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is not dropped")
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        if self.is_forked() {
            mem::forget(self.value.take());
        }
    }
}
