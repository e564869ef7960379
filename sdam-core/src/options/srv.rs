//! The SRV lookup of the seeds.

use alloc::{boxed::Box, format, string::String};
use core::time::Duration;

use crate::address::ServerAddress;

/// The SRV lookup of an SRV string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Srv {
    /// The host of the connection string, in lower case and without a final dot; its TXT record
    /// may hold options.
    pub host: Box<str>,
    /// `srvServiceName`: the first label of the name that is looked up, without its underscore.
    pub service: Box<str>,
    /// `srvMaxHosts`: the maximum number of hosts in use; 0: all of them.
    pub max_hosts: u32,
    /// The minimum time to live (TTL) of the records that the seeds came from; zero if it is not
    /// known. The first look-up after that is due when it has passed, but not before 60 s.
    pub ttl: Duration,
}

impl Srv {
    /// Creates the lookup of the `mongodb` service of `host`, with all its hosts.
    pub fn new(host: &str) -> Self {
        Self {
            host: host.trim_end_matches('.').to_ascii_lowercase().into(),
            service: "mongodb".into(),
            max_hosts: 0,
            ttl: Duration::ZERO,
        }
    }

    /// Returns the name whose SRV record lists the hosts, such as
    /// `_mongodb._tcp.cluster.example.com`.
    pub fn query_name(&self) -> String {
        format!("_{}._tcp.{}", self.service, self.host)
    }

    /// Returns the domain that the hosts have to be in: [`host`](Self::host) without its first
    /// label, or all of it if it has fewer than three (Initial DNS Seedlist Discovery: "Connection
    /// String Format").
    pub fn domain(&self) -> &str {
        match self.host.split_once('.') {
            Some((_, domain)) if domain.contains('.') => domain,
            _ => &self.host,
        }
    }

    /// Returns whether `host` may be connected to: its name is one or more labels, followed by a
    /// dot and the [`domain`](Self::domain) (Initial DNS Seedlist Discovery: "Querying DNS").
    pub fn allows(&self, host: &ServerAddress) -> bool {
        let name = host.host().trim_end_matches('.');
        name.strip_suffix(self.domain())
            .and_then(|head| head.strip_suffix('.'))
            .is_some_and(|labels| !labels.is_empty())
    }

    /// Returns [`max_hosts`](Self::max_hosts) as a number of items.
    pub(crate) fn max_hosts(&self) -> usize {
        usize::try_from(self.max_hosts).unwrap_or(usize::MAX)
    }
}
