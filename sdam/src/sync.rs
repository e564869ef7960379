//! The atomics, locks and events of this crate.
//!
//! A build with `--cfg sdam_loom`, which only `cargo xtask loom` makes, takes them from loom, or
//! from replacements built on loom's types. Models then run the real code through every
//! interleaving of its threads. Statistics counters and random numbers are excluded: they would
//! multiply the interleavings without influencing the outcome.

#[cfg(not(sdam_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

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
    // 5.4.2 has none. Without this one, the caller's next read could come before the registration.
    // It pairs with the fence before each notification.
    atomic::fence(atomic::Ordering::SeqCst);
    listener
}
