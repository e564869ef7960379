//! The SRV lookup of the seeds.

use alloc::{boxed::Box, format, string::String};

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
    /// `srvAllowedHostsSuffix`: the required end of the hosts' names, after a dot, instead of the
    /// domain of [`host`](Self::host); in lower case and without dots around it.
    pub allowed_hosts_suffix: Option<Box<str>>,
}

impl Srv {
    /// Creates the lookup of the `mongodb` service of `host`, with all its hosts.
    pub fn new(host: &str) -> Self {
        Self {
            host: host.trim_end_matches('.').to_ascii_lowercase().into(),
            service: "mongodb".into(),
            max_hosts: 0,
            allowed_hosts_suffix: None,
        }
    }

    /// Returns the name whose SRV record lists the hosts, such as
    /// `_mongodb._tcp.cluster.example.com`.
    pub fn query_name(&self) -> String {
        format!("_{}._tcp.{}", self.service, self.host)
    }
}
