//! The options of connection pools, and the parameters for clearing a pool (CMAP).

use alloc::{format, string::ToString};
use core::time::Duration;

use crate::{
    error::Error,
    ids::{Generation, ObjectId},
    options::ConfigError,
};

/// The options of a connection pool (CMAP: "Connection Pool Options").
///
/// ```
/// use sdam_core::options::Options;
///
/// let options = Options::parse("mongodb://a/?maxPoolSize=10&maxIdleTimeMS=60000").unwrap();
/// let pool = options.pool;
/// assert_eq!((pool.min_pool_size, pool.max_pool_size), (0, 10));
/// assert_eq!(pool.max_idle_time.unwrap().as_secs(), 60);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct PoolOptions {
    /// `maxPoolSize`: the maximum number of connections, whether available, in use or being
    /// established; 0 for no limit. The default is 100.
    pub max_pool_size: u32,
    /// `minPoolSize`: the minimum number of connections in a ready pool. The default is 0.
    pub min_pool_size: u32,
    /// `maxIdleTimeMS`: the maximum idle time of an available connection; `None`, the default, for
    /// no limit.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub max_idle_time: Option<Duration>,
    /// `maxConnecting`: the maximum number of connections being established at the same time. The
    /// default is 2.
    pub max_connecting: u32,
    /// `waitQueueTimeoutMS`: the maximum duration of a check-out; `None`, the default, for no
    /// limit.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub wait_queue_timeout: Option<Duration>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            max_pool_size: 100,
            min_pool_size: 0,
            max_idle_time: None,
            max_connecting: 2,
            wait_queue_timeout: None,
        }
    }
}

impl PoolOptions {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// If the minimum size exceeds the maximum size, or if the options would never allow a
    /// connection to be established.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.max_pool_size != 0 && self.min_pool_size > self.max_pool_size {
            return Err(ConfigError::new(
                "minPoolSize",
                self.min_pool_size.to_string(),
                format!("`maxPoolSize` is {}", self.max_pool_size),
                "lower `minPoolSize`, or raise `maxPoolSize`, for which 0 is no limit",
            ));
        }
        if self.max_connecting == 0 {
            let reason = "no connection could be established";
            let remedy = "allow at least 1";
            return Err(ConfigError::new("maxConnecting", "0", reason, remedy));
        }
        Ok(())
    }
}

/// The parameters and the cause of a clear (CMAP: "Clearing a Connection Pool").
///
/// Without a [`service_id`](Self::service_id), the clear also pauses the pool, and fails the
/// check-outs in its wait queue with [`Error::pool_cleared`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "camelCase"))]
pub struct PoolClear {
    /// The generation of connections opened after the clear.
    pub generation: Generation,
    /// The service that is cleared, behind a load balancer. Its connections become stale if their
    /// generation is below [`generation`](Self::generation).
    pub service_id: Option<ObjectId>,
    /// True if connections that are in use or being established are interrupted, too.
    #[doc(alias = "interruptInUseConnections")]
    pub interrupt_in_use: bool,
    /// True if the pool was already paused. Its generation still increases, but no event is
    /// published (CMAP: "Clearing a Connection Pool").
    pub was_paused: bool,
    /// The error that caused the clear.
    #[cfg_attr(feature = "serde", serde(rename = "error"))]
    pub cause: Error,
}

impl PoolClear {
    /// Creates a clear of the whole pool that does not interrupt connections in use.
    pub fn new(generation: Generation, cause: Error) -> Self {
        Self { generation, service_id: None, interrupt_in_use: false, was_paused: false, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn a_minimum_above_the_maximum_is_refused_unless_the_maximum_is_0() {
        let of = |query: &str| {
            let options = Options::parse(&format!("mongodb://a/?{query}"));
            options.map(|options| options.pool)
        };
        let error = of("minPoolSize=101").unwrap_err();
        let text = "`minPoolSize` is `101`: `maxPoolSize` is 100; lower `minPoolSize`, or raise \
                    `maxPoolSize`, for which 0 is no limit";
        assert_eq!(error.to_string(), text);
        assert_eq!(of("minPoolSize=100").unwrap().min_pool_size, 100);
        assert_eq!(of("minPoolSize=5&maxPoolSize=0").unwrap().max_pool_size, 0);
    }

    #[test]
    fn a_pool_that_could_establish_no_connection_is_refused() {
        let pool = PoolOptions { max_connecting: 0, ..PoolOptions::default() };
        let error = pool.validate().unwrap_err();
        assert_eq!((error.option(), error.value()), ("maxConnecting", "0"));
    }
}
