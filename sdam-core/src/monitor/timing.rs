//! The timeouts of checks and the waits between them.

use core::time::Duration;

use crate::time::Instant;

use super::{MonitorConfig, state::Idle};

/// The maximum extension of a check after the host was suspended. A short extension suffices,
/// because a reply that arrived in the meantime is read at once, and a dead peer never answers.
const GRACE: Duration = Duration::from_secs(1);

impl MonitorConfig {
    /// Returns the timeout for opening a connection or waiting for a reply, which is longer by a
    /// heartbeat interval if the reply is `awaited` (Server Monitoring: "Socket timeout"). `None`
    /// for no limit.
    pub(crate) fn limit(&self, awaited: bool) -> Option<Duration> {
        let limit = self.connect_timeout?;
        Some(if awaited { limit.saturating_add(self.heartbeat_frequency) } else { limit })
    }

    /// Returns the time from the end of a check to the start of the next one.
    pub(crate) fn wait(&self) -> Duration {
        self.heartbeat_frequency.max(self.min_heartbeat_frequency)
    }

    /// Returns the extension of a deadline that was noticed too late because the host was
    /// suspended.
    pub(super) fn grace(&self) -> Duration {
        self.connect_timeout.map_or(GRACE, |limit| limit.min(GRACE))
    }

    /// Returns the normal wait after a check that ended at `ended`.
    pub(super) fn pause(&self, ended: Instant) -> Idle {
        Idle { ended, until: ended + self.wait(), is_first: false }
    }

    /// Returns the minimum wait after a check that ended at `now`.
    pub(super) fn soon(&self, now: Instant) -> Idle {
        Idle { ended: now, until: now + self.min_heartbeat_frequency, is_first: false }
    }

    /// Returns the earliest time at which a requested check may begin; the first check may begin at
    /// once.
    pub(super) fn earliest(&self, idle: Idle) -> Instant {
        let wait = if idle.is_first { Duration::ZERO } else { self.min_heartbeat_frequency };
        idle.ended + wait
    }

    /// Returns the wait `idle`, shortened because a check was requested at `now` (Server
    /// Monitoring: "minHeartbeatFrequencyMS").
    pub(super) fn hastened(&self, idle: Idle, now: Instant) -> Idle {
        let earliest = now.max(self.earliest(idle));
        Idle { until: idle.until.min(earliest), ..idle }
    }
}

/// The times of a request and of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    /// The instant at which the request was written.
    pub(crate) sent: Instant,
    /// The instant at which the answer arrived.
    pub(crate) at: Instant,
}

impl Trip {
    /// Creates a trip and clamps inconsistent instants, so that the answer arrives neither after
    /// `now` nor before its request.
    pub(crate) fn new(sent: Instant, at: Instant, now: Instant) -> Self {
        let at = at.min(now);
        Self { sent: sent.min(at), at }
    }

    pub(crate) fn duration(self) -> Duration {
        self.at.since(self.sent)
    }

    /// Returns whether the answer arrived after `deadline`.
    pub(crate) fn is_late(self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|deadline| deadline < self.at)
    }

    /// Returns the time from the request to the answer, or to `deadline` if that is earlier.
    pub(crate) fn within(self, deadline: Option<Instant>) -> Duration {
        let end = deadline.map_or(self.at, |deadline| deadline.min(self.at));
        end.since(self.sent)
    }
}

impl Idle {
    /// Returns a wait that precedes the first check and ends at `until`.
    pub(super) fn first(until: Instant) -> Self {
        Self { ended: Instant::EPOCH, until, is_first: true }
    }

    /// Returns an empty wait after a check that ended at `now`.
    pub(super) fn at_once(now: Instant) -> Self {
        Self { ended: now, until: now, is_first: false }
    }

    /// Returns whether there is no wait at all.
    pub(super) fn is_at_once(&self) -> bool {
        self.until == self.ended
    }

    /// Returns whether the next check may begin.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until <= now
    }
}
