//! Server selection with background monitoring, which waits if no server is suitable, and the count
//! of waiting selections.

use std::{pin::pin, sync::Arc};

use futures::future::{BoxFuture, Either, FutureExt, select};
use sdam_core::{event::EventName, time::Instant};
use sdam_events::sink::Interest;
use sdam_select::criteria::Criteria;

use crate::engine::Engine;
use crate::{
    engine::snapshot::Snapshot,
    select::{Limit, SelectionEvents, error::SelectionError, select_from, selected::Selected},
    sync::{
        EventListener,
        atomic::{AtomicUsize, Ordering},
        listen,
    },
};

impl Engine {
    /// Selects from the current snapshot, without locking, allocating or waiting.
    #[expect(clippy::inline_always, reason = "to copy the result costs a tenth of a selection")]
    #[inline(always)]
    pub(crate) fn try_select(
        &self,
        criteria: &Criteria,
    ) -> Result<Option<Selected>, SelectionError> {
        let snapshot = self.published.load();
        select_from(&snapshot, &self.common.settings, criteria, self.common.random())
    }

    /// Selects a server, waiting for up to `limit` if necessary (Server Selection: "Multi-threaded
    /// or asynchronous server selection").
    pub(crate) async fn select(
        self: &Arc<Self>,
        criteria: &Criteria,
        limit: Limit,
    ) -> Result<Selected, SelectionError> {
        // If the sinks want only waiting events, a selection that does not wait has nothing to
        // publish.
        const WAITING: Interest = Interest::of(&[EventName::ServerSelectionWaiting]);
        if !self.events.wants_any(Interest::SELECTION.without(WAITING))
            && let Some(selected) = self.try_select(criteria)?
        {
            return Ok(selected);
        }
        let events = SelectionEvents::begin(self.selection_context(), criteria);
        let outcome = match self.try_select(criteria) {
            Ok(Some(selected)) => Ok(selected),
            Ok(None) => self.wait(criteria, limit, &events).await,
            Err(error) => Err(error),
        };
        events.end(outcome)
    }

    async fn wait(
        self: &Arc<Self>,
        criteria: &Criteria,
        limit: Limit,
        events: &SelectionEvents<'_>,
    ) -> Result<Selected, SelectionError> {
        if limit.timeout.is_zero() {
            events.waiting(Some(limit.timeout));
            // Requests checks, so that servers are found even if callers never wait in a selection.
            self.request_checks();
            return Err(self.timed_out(criteria, limit, events.started));
        }
        let max_waiters = self.common.options.max_waiters;
        let Some((_guard, first)) = self.waiters.enter(max_waiters) else {
            return Err(SelectionError::TooManyWaiters { limit: max_waiters });
        };
        let deadline = events.started + limit.timeout;
        events.waiting(Some(deadline.since(self.now())));
        if first {
            self.announce_waiters();
            self.prepare_pools().resume();
        }
        let mut expiry = self.common.backend.clock.sleep_until(deadline);
        loop {
            // Starts to listen before reading the snapshot, so that no change in between is missed.
            let changed = listen(&self.published.changed);
            if let Some(selected) = self.try_select(criteria)? {
                return Ok(selected);
            }
            if either(changed, &mut expiry).await {
                continue;
            }
            // A change at the time of the deadline is still considered (L-63).
            return match self.try_select(criteria)? {
                Some(selected) => Ok(selected),
                None => Err(self.timed_out(criteria, limit, events.started)),
            };
        }
    }

    pub(crate) fn timed_out(
        &self,
        criteria: &Criteria,
        limit: Limit,
        started: Instant,
    ) -> SelectionError {
        let snapshot = self.published.load_full();
        let mut timeout =
            limit.timed_out(&snapshot, &self.common.settings, criteria, started, self.now());
        if let Some(history) = &self.history {
            timeout.history = history.transitions();
        }
        SelectionError::Timeout(timeout)
    }

    /// Waits until `ready` returns a value for a snapshot, or `deadline` has passed.
    pub(crate) async fn wait_for<T>(
        &self,
        mut ready: impl FnMut(&Snapshot) -> Option<T>,
        deadline: Option<Instant>,
    ) -> Option<T> {
        let mut expiry = match deadline {
            Some(deadline) => self.common.backend.clock.sleep_until(deadline),
            None => futures::future::pending().boxed(),
        };
        loop {
            let changed = listen(&self.published.changed);
            let (found, closed) = {
                let snapshot = self.published.load();
                (ready(&snapshot), snapshot.closed)
            };
            if found.is_some() || closed || !either(changed, &mut expiry).await {
                return found.or_else(|| ready(&self.published.load()));
            }
        }
    }
}

/// The number of waiting selections.
///
/// While it is not zero, every idle monitor requests a check. Servers are then checked every
/// `minHeartbeatFrequencyMS`, however many selections wait (SDAM: "minHeartbeatFrequencyMS", Server
/// Selection: "request an immediate check"). A monitor reads the count whenever it is idle, so a
/// busy monitor misses no request.
///
/// Relaxed accesses suffice: after the count has left zero, the first waiter gives each monitor an
/// order, and the lock of the orders makes the count visible to the monitor. A fence makes the
/// count visible to the monitors of servers that are just being added. Later waiters rely on the
/// first one.
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

/// Waits for a change or the deadline, whichever comes first. Returns whether it was the change.
async fn either(changed: EventListener, expiry: &mut BoxFuture<'_, ()>) -> bool {
    matches!(select(pin!(changed), expiry).await, Either::Left(_))
}
