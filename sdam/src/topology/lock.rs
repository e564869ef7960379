//! The topology lock: a mutex that detects reentrant calls of connection pools.

use std::{
    ops::{Deref, DerefMut},
    sync::PoisonError,
};

use crate::sync::{Mutex, MutexGuard};

/// A mutex that ignores poisoning, because a state machine never stops half-way.
///
/// In debug builds, locking it again on the same thread panics with an explanation instead of a
/// deadlock: a pool has called back into the topology.
#[derive(Debug, Default)]
pub(super) struct Lock<T> {
    value: Mutex<T>,
    #[cfg(debug_assertions)]
    holder: Mutex<Option<std::thread::ThreadId>>,
}

/// The guard of a held [`Lock`].
#[derive(Debug)]
pub(super) struct LockGuard<'l, T> {
    value: MutexGuard<'l, T>,
    #[cfg(debug_assertions)]
    holder: &'l Mutex<Option<std::thread::ThreadId>>,
}

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            #[cfg(debug_assertions)]
            holder: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> LockGuard<'_, T> {
        #[cfg(debug_assertions)]
        self.refuse_reentry();
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(debug_assertions)]
        self.hold();
        LockGuard {
            value,
            #[cfg(debug_assertions)]
            holder: &self.holder,
        }
    }

    #[cfg(debug_assertions)]
    fn refuse_reentry(&self) {
        let holder = *self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            holder != Some(std::thread::current().id()),
            "a connection pool called back into the topology from `create`, `ready`, `clear` or \
             `close`, which run while the topology is locked; make the call from a task of the pool instead",
        );
    }

    #[cfg(debug_assertions)]
    fn hold(&self) {
        let own = std::thread::current().id();
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = Some(own);
    }
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

#[cfg(debug_assertions)]
impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
