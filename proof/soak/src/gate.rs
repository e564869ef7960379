//! Pauses and ends the traffic of all clients.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Traffic,
    Pause,
    End,
}

/// The phase, and the number of clients that have something under way.
pub(crate) struct Gate {
    phase: AtomicU8,
    inside: AtomicUsize,
}

impl Gate {
    /// Creates a gate that is closed.
    pub(crate) fn new() -> Self {
        Self { phase: AtomicU8::new(Phase::Pause as u8), inside: AtomicUsize::new(0) }
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    pub(crate) fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) == phase as u8
    }

    /// Returns whether no pass is held. Once it has returned true while the traffic is paused, no
    /// operation begins before [`Phase::Traffic`].
    pub(crate) fn is_empty(&self) -> bool {
        self.inside.load(Ordering::SeqCst) == 0
    }

    /// Returns a pass for the time of some operations, unless the traffic is paused. The pass is
    /// counted before the phase is read. Therefore, a thread that pauses the traffic and then finds
    /// the gate empty knows that no operation is under way.
    pub(crate) fn pass(&self) -> Option<Pass<'_>> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let pass = Pass(self);
        self.is(Phase::Traffic).then_some(pass)
    }
}

/// The permission to use a client.
pub(crate) struct Pass<'g>(&'g Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
