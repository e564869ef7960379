//! The resolver trait, for SRV and TXT records.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use sdam_core::{error::Error, srv::SrvRecords};

/// Looks up the SRV and TXT records of `mongodb+srv` seed lists.
///
/// Host names of servers are looked up by the [`Transport`](crate::connect::Transport) instead.
///
/// # Contract
///
/// - The caller holds no lock, and may poll the futures by any executor on any thread.
/// - Dropping a future abandons the look-up, so the caller enforces `timeout`. Only a blocking
///   resolver must enforce `timeout` itself, because its look-ups cannot be raced against a timer;
///   other resolvers may ignore `timeout`. `None` means no limit.
/// - A name without records of the requested type yields an empty list. A failed look-up is an
///   error at [`Stage::Dns`](sdam_core::error::Stage::Dns).
/// - Nothing is cached longer than the records' time to live.
#[async_trait]
pub trait Resolver: Send + Sync + Debug + 'static {
    /// Looks up the SRV records of `name`, such as `_mongodb._tcp.example.com`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the look-up.
    async fn lookup_srv(&self, name: &str, timeout: Option<Duration>) -> Result<SrvRecords, Error>;

    /// Looks up the TXT records of `name`. The strings of each record are joined without a
    /// separator.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the look-up.
    async fn lookup_txt(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Vec<Box<str>>, Error>;
}
