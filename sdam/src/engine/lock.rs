//! The lock of the engine.

#[cfg(debug_assertions)]
use std::thread;
use std::{
    ops::{Deref, DerefMut},
    sync::PoisonError,
};

use crate::sync::{Mutex, MutexGuard};

/// A mutex that ignores poisoning, because a state machine never stops half-way.
///
/// In debug builds, locking it again on the same thread, which happens if a pool calls back into
/// the topology, panics with an explanation instead of deadlocking.
#[derive(Debug)]
pub(super) struct Lock<T> {
    value: Mutex<T>,
    holder: Holder,
}

/// The guard of a held [`Lock`].
#[derive(Debug)]
pub(super) struct LockGuard<'l, T> {
    value: MutexGuard<'l, T>,
    holder: &'l Holder,
}

/// The thread that holds the lock, recorded in debug builds only.
#[derive(Debug, Default)]
struct Holder {
    #[cfg(debug_assertions)]
    thread: Mutex<Option<thread::ThreadId>>,
}

impl Holder {
    fn is_this_thread(&self) -> bool {
        #[cfg(debug_assertions)]
        return *lock(&self.thread) == Some(thread::current().id());
        #[cfg(not(debug_assertions))]
        false
    }

    fn set(&self, is_held: bool) {
        #[cfg(debug_assertions)]
        {
            *lock(&self.thread) = is_held.then(|| thread::current().id());
        }
        #[cfg(not(debug_assertions))]
        let _ = is_held;
    }
}

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), holder: Holder::default() }
    }

    pub(super) fn lock(&self) -> LockGuard<'_, T> {
        assert!(
            !self.holder.is_this_thread(),
            "a connection pool called back into the topology from `create`, `ready`, `clear` or \
             `close`, which run while the topology is locked; make the call from a task of the pool instead",
        );
        let value = lock(&self.value);
        self.holder.set(true);
        LockGuard { value, holder: &self.holder }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        self.holder.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locking_twice_panics_with_an_explanation_in_debug_builds() {
        let lock = Lock::new(1);
        let attempt = || {
            let _outer = lock.lock();
            let _inner = lock.lock();
        };
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)).unwrap_err();
        let message = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(message.contains("called back into the topology"), "{message}");
        assert_eq!(*lock.lock(), 1, "the lock is usable afterwards");
    }
}
