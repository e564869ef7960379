//! SRV seed lists: chooses which hosts of a record to use (Initial DNS Seedlist Discovery).

use alloc::{format, vec::Vec};
use core::time::Duration;

use crate::{
    address::ServerAddress,
    options::{ConfigError, Srv},
    rng::Rng,
    topology::TopologyDescription,
};

/// The minimum time between two successful look-ups (Polling SRV Records: "rescanSRVIntervalMS").
#[doc(alias = "rescanSRVIntervalMS")]
pub const MIN_RESCAN_INTERVAL: Duration = Duration::from_secs(60);

/// The answer to a look-up of SRV records. Priorities and weights are ignored (N-3, N-26).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SrvRecords {
    /// The target and port of each record, without the root's trailing dot, in the order of the
    /// answer.
    pub hosts: Vec<ServerAddress>,
    /// The minimum time to live (TTL) of all records; zero if unknown.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub ttl: Duration,
}

impl SrvRecords {
    /// Creates an answer with these `hosts`, valid for `ttl`.
    pub fn new(hosts: Vec<ServerAddress>, ttl: Duration) -> Self {
        Self { hosts, ttl }
    }
}

impl Srv {
    /// Returns the seeds from the hosts of the initial look-up: all of them, or `srvMaxHosts`
    /// random ones (Initial DNS Seedlist Discovery: "Querying DNS").
    ///
    /// # Errors
    ///
    /// If there are no hosts, or one of them is not [allowed](Self::allows).
    pub(crate) fn seeds(
        &self,
        hosts: &[ServerAddress],
        rng: &mut Rng,
    ) -> Result<Vec<ServerAddress>, ConfigError> {
        let invalid = |value: &str, reason, remedy| {
            let option = format!("SRV record {}", self.query_name());
            Err(ConfigError::new(option, value, reason, remedy))
        };
        if hosts.is_empty() {
            let remedy = "create the record, or list the servers in a mongodb:// string";
            return invalid("", "there is none".into(), remedy);
        }
        if let Some(foreign) = hosts.iter().find(|host| !self.allows(host)) {
            let remedy = "correct the record, or list the servers in a mongodb:// string \
                          (srvAllowedHostsSuffix is not supported)";
            let reason = format!("the host is not in the domain {}", self.domain());
            return invalid(foreign.as_str(), reason, remedy);
        }
        Ok(TopologyDescription::default().sample_hosts(hosts, self.max_hosts(), rng))
    }
}
