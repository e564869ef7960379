//! The staleness of secondaries (Max Staleness).

use core::time::Duration;

use sdam_core::{
    read_preference::ReadPreference,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

use crate::settings::Settings;

/// The reference point for estimating the staleness of secondaries.
#[derive(Clone, Copy, Debug)]
enum Reference {
    /// The times of the primary's last check and its last write.
    Primary(Option<(Instant, i64)>),
    /// The most recent last write of any secondary, if there is no primary.
    NewestSecondary(Option<i64>),
}

/// A staleness limit, and the reference point for its estimates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StalenessLimit {
    pub(crate) limit: Duration,
    heartbeat_frequency: Duration,
    /// The maximum lag that the limit allows, in nanoseconds.
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
    /// `ReplicaSetNoPrimary` (section "maxStalenessSeconds"). The failure of one server does not
    /// make the others fresher. PyMongo compares with the remaining servers instead.
    pub(crate) fn new(
        topology: &TopologyDescription,
        settings: &Settings,
        preference: &ReadPreference,
    ) -> Option<Self> {
        let limit = preference.max_staleness?;
        Some(Self {
            limit,
            heartbeat_frequency: settings.heartbeat_frequency,
            allowed: nanos(limit) - nanos(settings.heartbeat_frequency),
            reference: Reference::of(topology),
        })
    }

    /// Returns whether the known lag of `server` is within the limit.
    pub(crate) fn is_met_by(&self, server: &ServerDescription) -> bool {
        server.server_type != ServerType::RsSecondary
            || self.reference.lag(server).is_some_and(|lag| lag <= self.allowed)
    }

    /// Returns the estimated staleness of `server` in nanoseconds, which can be negative; `None` if
    /// the required times are missing (L-26).
    pub(crate) fn estimate(&self, server: &ServerDescription) -> Option<i128> {
        if server.server_type != ServerType::RsSecondary {
            return Some(0);
        }
        Some(self.reference.lag(server)? + nanos(self.heartbeat_frequency))
    }
}

/// Returns how far a secondary lagged, at its last check, behind the primary or, if there is no
/// primary, behind the newest secondary (Max Staleness: "Estimating Staleness", without the
/// heartbeat frequency). Returns `None` for other types of servers, and if the dates of the last
/// writes are unknown.
///
/// The dates are only as recent as the last checks, so a lag of up to about the heartbeat frequency
/// is normal.
pub fn lag(topology: &TopologyDescription, server: &ServerDescription) -> Option<Duration> {
    let is_secondary = server.server_type == ServerType::RsSecondary;
    let lag = Reference::of(topology).lag(server).filter(|_| is_secondary)?;
    Some(Duration::from_nanos(u64::try_from(lag.max(0)).unwrap_or(u64::MAX)))
}

impl Reference {
    fn of(topology: &TopologyDescription) -> Self {
        match topology.primary() {
            Some(primary) => Self::Primary(
                primary
                    .last_update_time
                    .and_then(|updated| Some((updated, primary.last_write_date?))),
            ),
            None => Self::NewestSecondary(
                topology
                    .servers()
                    .iter()
                    .filter(|server| server.server_type == ServerType::RsSecondary)
                    .filter_map(|server| server.last_write_date)
                    .max(),
            ),
        }
    }

    /// Returns the lag of `server`, in nanoseconds, at the time of its check.
    fn lag(self, server: &ServerDescription) -> Option<i128> {
        let write = server.last_write_date?;
        Some(match self {
            // (S.lastUpdateTime - S.lastWriteDate) - (P.lastUpdateTime - P.lastWriteDate)
            Self::Primary(primary) => {
                let (primary_updated, primary_write) = primary?;
                let updated = i128::from(server.last_update_time?.as_nanos());
                updated - i128::from(primary_updated.as_nanos()) + since(primary_write, write)
            }
            // SMax.lastWriteDate - S.lastWriteDate
            Self::NewestSecondary(newest) => since(newest?, write),
        })
    }
}

/// Returns the nanoseconds from `earlier` to `later`, both in milliseconds.
fn since(later: i64, earlier: i64) -> i128 {
    (i128::from(later) - i128::from(earlier)) * 1_000_000
}

/// Converts to signed nanoseconds; even the longest duration fits.
fn nanos(duration: Duration) -> i128 {
    duration.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use sdam_core::topology::TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary};

    use super::*;
    use crate::testing::{server, topology};

    fn written(number: u64, server_type: ServerType, updated: u64, date: i64) -> ServerDescription {
        let mut server = server(number, server_type);
        server.last_update_time = Some(Instant::from_millis(updated));
        server.last_write_date = Some(date);
        server
    }

    #[test]
    fn only_secondaries_lag_behind_the_primary_or_the_newest_of_them() {
        let primary = written(1, ServerType::RsPrimary, 5_000, 100_000);
        let late = written(2, ServerType::RsSecondary, 7_000, 60_000);
        let ahead = written(3, ServerType::RsSecondary, 5_000, 101_000);
        let set = topology(ReplicaSetWithPrimary, [primary.clone(), late.clone(), ahead.clone()]);
        assert_eq!(lag(&set, &primary), None);
        assert_eq!(lag(&set, &late), Some(Duration::from_secs(42)));
        assert_eq!(lag(&set, &ahead), Some(Duration::ZERO));
        let rest = topology(ReplicaSetNoPrimary, [late.clone(), ahead]);
        assert_eq!(lag(&rest, &late), Some(Duration::from_secs(41)));
        let unknown = server(4, ServerType::RsSecondary);
        assert_eq!(lag(&set, &unknown), None);
    }
}
