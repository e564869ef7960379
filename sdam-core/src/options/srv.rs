//! The SRV look-up that yields the seeds.

use alloc::{boxed::Box, format, string::String};
use core::time::Duration;

use crate::address::ServerAddress;

/// The SRV look-up for a `mongodb+srv` connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Srv {
    /// The host of the connection string, in lower case and without a final dot. Its TXT record may
    /// contain options.
    pub host: Box<str>,
    /// `srvServiceName`: the first label of the name to look up, without its underscore.
    pub service: Box<str>,
    /// `srvMaxHosts`: the maximum number of hosts to use; 0 for all.
    pub max_hosts: u32,
    /// The minimum time to live (TTL) of the records that yielded the seeds; zero if unknown. The
    /// next look-up is due once this time has passed, but not before 60 s have passed.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub ttl: Duration,
}

impl Srv {
    /// Creates a look-up of the hosts for the service `mongodb` at `host`, without limiting their
    /// number.
    pub fn new(host: &str) -> Self {
        Self {
            host: host.trim_end_matches('.').to_ascii_lowercase().into(),
            service: "mongodb".into(),
            max_hosts: 0,
            ttl: Duration::ZERO,
        }
    }

    /// Returns the name of the SRV record that lists the hosts, such as
    /// `_mongodb._tcp.cluster.example.com`.
    pub fn query_name(&self) -> String {
        format!("_{}._tcp.{}", self.service, self.host)
    }

    /// Returns the domain to which the hosts must belong: [`host`](Self::host) without its first
    /// label, or the whole host if it has fewer than three labels (Initial DNS Seedlist Discovery:
    /// "Connection String Format").
    pub fn domain(&self) -> &str {
        match self.host.split_once('.') {
            Some((_, domain)) if domain.contains('.') => domain,
            _ => &self.host,
        }
    }

    /// Returns whether connecting to `host` is allowed. Its name must consist of one or more
    /// labels, followed by a dot and the [`domain`](Self::domain) (Initial DNS Seedlist Discovery:
    /// "Querying DNS").
    pub(crate) fn allows(&self, host: &ServerAddress) -> bool {
        let name = host.host().trim_end_matches('.');
        name.strip_suffix(self.domain())
            .and_then(|head| head.strip_suffix('.'))
            .is_some_and(|labels| !labels.is_empty())
    }

    /// Returns [`max_hosts`](Self::max_hosts) as a `usize`.
    pub(crate) fn max_hosts(&self) -> usize {
        usize::try_from(self.max_hosts).unwrap_or(usize::MAX)
    }
}
