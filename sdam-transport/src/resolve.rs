//! SRV and TXT records, as a seam.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use sdam_core::address::ServerAddress;

use crate::error::TransportError;

/// Looks up the DNS records of seed lists.
///
/// Host names of servers are not its business: a [`Transport`](crate::connect::Transport) resolves
/// those itself.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the futures by any executor on any thread.
/// - Dropping a future abandons the look-up.
/// - A name without records of the kind asked for yields an empty list, whereas a look-up that
///   could not be made is an error at [`Stage::Dns`](sdam_core::error::Stage::Dns).
/// - Nothing is cached beyond the records' time to live.
#[async_trait]
pub trait Resolver: Send + Sync + Debug + 'static {
    /// The SRV records of `name`, such as `_mongodb._tcp.example.com`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the look-up.
    async fn lookup_srv(&self, name: &str) -> Result<SrvRecords, TransportError>;

    /// The TXT records of `name`, the character strings of each joined without a separator.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the look-up.
    async fn lookup_txt(&self, name: &str) -> Result<Vec<Box<str>>, TransportError>;
}

/// The answer to a look-up of SRV records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrvRecords {
    /// Target and port of each record, without the root's trailing dot, in the order of the answer.
    pub hosts: Vec<ServerAddress>,
    /// The least time to live of all records.
    pub ttl: Duration,
}

impl SrvRecords {
    /// An answer of `hosts` that is good for `ttl`.
    pub fn new(hosts: Vec<ServerAddress>, ttl: Duration) -> Self {
        Self { hosts, ttl }
    }
}
