//! The count of selections that wait for a server.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// The number of waiting selections.
///
/// While it is not zero, every idle monitor requests a check. Servers are then checked every
/// `minHeartbeatFrequencyMS`, however many selections wait (SDAM: "minHeartbeatFrequencyMS", Server
/// Selection: "request an immediate check"). A monitor reads the count whenever it is idle, so a
/// busy monitor misses no request.
///
/// Relaxed accesses suffice: after the count has left zero, the first waiter gives each monitor an
/// order, whose lock makes the count visible to it, and a fence makes it visible to the monitors of
/// servers that are just being added. Later waiters rely on the first one.
#[derive(Debug, Default)]
pub(crate) struct Waiters(AtomicUsize);

impl Waiters {
    /// Returns whether any selection is waiting.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a waiter until the guard is dropped. Returns `None` if `limit` selections are already
    /// waiting. The second value is true for the first waiter, which has to wake the monitors.
    pub(crate) fn enter(&self, limit: usize) -> Option<(WaiterGuard<'_>, bool)> {
        // A refused waiter must not be counted even for a moment: the next waiter could then find a
        // count of one, not regard itself as the first, and fail to wake the monitors.
        let more = |waiters: usize| (waiters < limit).then_some(waiters + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let before = taken.ok()?;
        Some((WaiterGuard(self), before == 0))
    }
}

/// The registration of one waiting selection.
#[derive(Debug)]
pub(crate) struct WaiterGuard<'d>(&'d Waiters);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
