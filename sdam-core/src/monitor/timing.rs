//! How long a monitor waits for what.

use core::time::Duration;

use crate::{options::MIN_HEARTBEAT_FREQUENCY, time::Instant};

use super::{MonitorConfig, check::Idle};

/// How long a check that outlived a suspended host may take to show a sign of life: what the server
/// sent meanwhile is read at once, and a peer that is gone answers nothing anyway.
const GRACE: Duration = Duration::from_secs(1);

impl MonitorConfig {
    /// How long to wait for a connection or a reply; an `awaited` one may take a heartbeat longer
    /// (Server Monitoring: "Socket timeout"). `None` for no limit.
    pub(crate) fn limit(&self, awaited: bool) -> Option<Duration> {
        let limit = self.connect_timeout?;
        Some(if awaited {
            limit.saturating_add(self.heartbeat_frequency)
        } else {
            limit
        })
    }

    /// The time from the end of a check to the next one.
    pub(crate) fn wait(&self) -> Duration {
        self.heartbeat_frequency.max(MIN_HEARTBEAT_FREQUENCY)
    }

    /// How long to go on waiting where a deadline was noticed too late to mean anything.
    pub(super) fn grace(&self) -> Duration {
        self.connect_timeout.map_or(GRACE, |limit| limit.min(GRACE))
    }

    /// The normal wait after a check that ended at `ended`.
    pub(super) fn pause(&self, ended: Instant) -> Idle {
        Idle {
            ended,
            until: ended + self.wait(),
        }
    }
}

impl Idle {
    /// No wait at all after the check that ended at `now`.
    pub(super) fn at_once(now: Instant) -> Self {
        Self {
            ended: now,
            until: now,
        }
    }

    /// The shortest wait between two checks, after the one that ended at `now`.
    pub(super) fn soon(now: Instant) -> Self {
        Self {
            ended: now,
            until: now + MIN_HEARTBEAT_FREQUENCY,
        }
    }

    /// Whether there was no wait to begin with.
    pub(super) fn is_at_once(&self) -> bool {
        self.until == self.ended
    }

    /// Whether the next check may begin.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// The wait when a check was requested at `now` (Server Monitoring: "minHeartbeatFrequencyMS").
    pub(super) fn hastened(self, now: Instant) -> Self {
        let earliest = now.max(self.ended + MIN_HEARTBEAT_FREQUENCY);
        Self {
            until: self.until.min(earliest),
            ..self
        }
    }
}
