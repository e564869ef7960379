//! The staleness of secondaries (Max Staleness).

use core::time::Duration;

use sdam_core::{
    read_preference::ReadPreference,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

use crate::settings::Settings;

/// The reference for the last write of a secondary.
#[derive(Clone, Copy, Debug)]
enum Reference {
    /// The times of the primary's last check and its last write.
    Primary(Option<(Instant, i64)>),
    /// The most recent last write of any secondary, if there is no primary.
    NewestSecondary(Option<i64>),
}

/// A staleness limit, and the reference for its estimates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StalenessLimit {
    limit: Duration,
    heartbeat_frequency: Duration,
    /// The maximum lag within the limit, in nanoseconds.
    allowed: i128,
    reference: Reference,
}

impl StalenessLimit {
    /// Returns the limit of `preference`, if it has one.
    ///
    /// The reference is determined from all servers of the topology, including deprioritized ones
    /// (L-53). Server Selection filters deprioritized addresses out of the *candidates*, but
    /// defines staleness by the topology: by the primary's description if the topology type is
    /// `ReplicaSetWithPrimary`, and by "the secondary with the greatest lastWriteDate" if it is
    /// `ReplicaSetNoPrimary` (section "maxStalenessSeconds"). A server that has just failed does
    /// not make the others fresher. PyMongo compares with the remaining servers.
    pub(crate) fn new(
        topology: &TopologyDescription,
        settings: &Settings,
        preference: &ReadPreference,
    ) -> Option<Self> {
        let limit = preference.max_staleness?;
        let reference = match topology.primary() {
            Some(primary) => Reference::Primary(
                primary
                    .last_update_time
                    .and_then(|updated| Some((updated, primary.last_write_date?))),
            ),
            None => Reference::NewestSecondary(
                topology
                    .servers()
                    .iter()
                    .filter(|server| server.server_type == ServerType::RsSecondary)
                    .filter_map(|server| server.last_write_date)
                    .max(),
            ),
        };
        Some(Self {
            limit,
            heartbeat_frequency: settings.heartbeat_frequency,
            allowed: nanos(limit) - nanos(settings.heartbeat_frequency),
            reference,
        })
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns whether the known lag of `server` is within the limit.
    pub(crate) fn is_met_by(&self, server: &ServerDescription) -> bool {
        server.server_type != ServerType::RsSecondary
            || self.lag(server).is_some_and(|lag| lag <= self.allowed)
    }

    /// Returns the estimated staleness of `server` in nanoseconds, which can be negative; `None` if
    /// the required times are missing (L-26).
    pub(crate) fn estimate(&self, server: &ServerDescription) -> Option<i128> {
        if server.server_type != ServerType::RsSecondary {
            return Some(0);
        }
        Some(self.lag(server)? + nanos(self.heartbeat_frequency))
    }

    /// Returns the lag of `server`, in nanoseconds, at the time of its check.
    fn lag(&self, server: &ServerDescription) -> Option<i128> {
        let write = server.last_write_date?;
        Some(match self.reference {
            // (S.lastUpdateTime - S.lastWriteDate) - (P.lastUpdateTime - P.lastWriteDate)
            Reference::Primary(primary) => {
                let (primary_updated, primary_write) = primary?;
                let updated = i128::from(server.last_update_time?.as_nanos());
                updated - i128::from(primary_updated.as_nanos()) + since(primary_write, write)
            }
            // SMax.lastWriteDate - S.lastWriteDate
            Reference::NewestSecondary(newest) => since(newest?, write),
        })
    }
}

/// Returns the nanoseconds from `earlier` to `later`, both in milliseconds.
fn since(later: i64, earlier: i64) -> i128 {
    (i128::from(later) - i128::from(earlier)) * 1_000_000
}

/// Converts to signed nanoseconds; the longest duration fits.
fn nanos(duration: Duration) -> i128 {
    duration.as_nanos() as i128
}
