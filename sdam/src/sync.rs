//! The atomics, locks, wakers and events that threads of this crate meet at.
//!
//! A build with `--cfg sdam_loom`, which only `cargo xtask loom` makes, takes them from loom, or
//! from stand-ins made of loom's parts, so that models run the real code through every interleaving
//! of its threads. What only counts for statistics or draws random numbers stays outside: it would
//! multiply the interleavings and decides nothing.

#[cfg(not(sdam_loom))]
pub(crate) use std::sync::{Arc as CountedArc, Mutex, MutexGuard, atomic};

#[cfg(not(sdam_loom))]
pub(crate) use arc_swap::{ArcSwap, Guard};
#[cfg(not(sdam_loom))]
pub(crate) use event_listener::{Event, EventListener};
#[cfg(not(sdam_loom))]
pub(crate) use futures::task::AtomicWaker;
#[cfg(sdam_loom)]
pub(crate) use loom::sync::{Arc as CountedArc, Mutex, MutexGuard, atomic};
#[cfg(sdam_loom)]
pub(crate) use sdam_events::sync::AtomicWaker;

#[cfg(sdam_loom)]
pub(crate) use self::stand_in::{ArcSwap, Event, EventListener, Guard};

#[cfg(sdam_loom)]
mod stand_in;
