//! The count of selections that wait for a server.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// The number of waiting selections.
///
/// While it is not zero, every idle monitor requests a check. Servers are then checked every
/// `minHeartbeatFrequencyMS`, however many selections wait (SDAM: "minHeartbeatFrequencyMS",
/// Server Selection: "request an immediate check"). The count is a level and not an edge, so a
/// busy monitor cannot miss it.
#[derive(Debug, Default)]
pub(crate) struct Demand(AtomicUsize);

impl Demand {
    /// Returns whether any selection is waiting.
    pub(crate) fn is_pressing(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn waiters(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a waiter until the ticket is dropped. Returns `None` if `limit` selections wait
    /// already. The second value is true for the first waiter, which has to wake the monitors.
    pub(crate) fn ticket(&self, limit: usize) -> Option<(Ticket<'_>, bool)> {
        // A refused waiter is never counted; otherwise the first waiter could see a count of one.
        let more = |waiters: usize| (waiters < limit).then_some(waiters + 1);
        let taken = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        let before = taken.ok()?;
        Some((Ticket(self), before == 0))
    }
}

/// The registration of one waiting selection.
#[derive(Debug)]
pub(crate) struct Ticket<'d>(&'d Demand);

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_ticket_wakes_and_the_last_one_ends_the_demand() {
        // F-44
        let demand = Demand::default();
        let (first, wake) = demand.ticket(2).unwrap();
        assert!(wake && demand.is_pressing());
        let (second, wake) = demand.ticket(2).unwrap();
        assert!(!wake);
        // L-64
        assert!(demand.ticket(2).is_none());
        assert_eq!(demand.waiters(), 2);
        drop(first);
        assert!(demand.is_pressing());
        drop(second);
        assert!(!demand.is_pressing());
        assert!(demand.ticket(2).unwrap().1);
    }
}
