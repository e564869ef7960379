//! The atomics, locks and events of this crate.
//!
//! A build with `--cfg sdam_loom`, which only `cargo xtask loom` makes, takes them from loom, or
//! from replacements built on loom's types. Models then run the real code through every
//! interleaving of its threads. Statistics counters and random numbers are excluded: they would
//! multiply the interleavings without influencing the outcome.

#[cfg(not(sdam_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
#[cfg(debug_assertions)]
use std::thread;
use std::{
    ops::{Deref, DerefMut},
    sync::PoisonError,
};

#[cfg(sdam_loom)]
pub(crate) use self::stand_in::{ArcSwap, Event, EventListener, Guard};
#[cfg(not(sdam_loom))]
pub(crate) use arc_swap::{ArcSwap, Guard};
#[cfg(not(sdam_loom))]
pub(crate) use event_listener::{Event, EventListener};
#[cfg(sdam_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

#[cfg(sdam_loom)]
mod stand_in;

/// Starts to listen for `event`. Either the listener is notified, or the caller then sees all that
/// was written before the notification.
pub(crate) fn listen(event: &Event) -> EventListener {
    let listener = event.listen();
    // The documentation of `Event::listen` promises a fence after the registration, but version
    // 5.4.2 has none. Without the fence below, the caller's next read could come before the
    // registration. This fence pairs with the fence before each notification.
    atomic::fence(atomic::Ordering::SeqCst);
    listener
}

/// A mutex that ignores poisoning, because the state machine never panics in the middle of a
/// change.
///
/// In debug builds, locking it again on the same thread, which happens if a pool calls back into
/// the topology, panics with an explanation instead of deadlocking.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    value: Mutex<T>,
    holder: Holder,
}

/// The guard of a held [`Lock`].
#[derive(Debug)]
pub(crate) struct LockGuard<'l, T> {
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
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), holder: Holder::default() }
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
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

/// Locks a mutex and ignores poisoning.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
