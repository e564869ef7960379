//! Detection of `fork`: what a child process has inherited must be left alone.
//!
//! A child shares the sockets of its parent. If it used them, or closed them by the runtime that it
//! shares as well, the parent's connections would break.

use std::mem;

/// Tells whether the process was forked since the guard was created.
///
/// A child that was created by other means than the function `fork` of the system's C library is
/// not noticed, nor is any outside Unix.
#[derive(Clone, Debug)]
pub struct ForkGuard(forkguard::Guard);

impl ForkGuard {
    /// Creates a guard of the current process.
    pub fn current() -> Self {
        Self(forkguard::new())
    }

    /// Returns whether this process is a child of the one that created the guard. Takes about a
    /// nanosecond.
    #[inline]
    pub fn is_forked(&self) -> bool {
        // The original never forgets the fork.
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
