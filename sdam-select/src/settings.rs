//! The client's settings for selection.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use sdam_core::options::{Options, SelectionStrategy};

use crate::candidate::Selector;

/// The client's settings for selection.
///
/// The specification does not allow operations to have their own values (Server Selection:
/// "localThresholdMS"), so these settings are not part of [`Criteria`](crate::criteria::Criteria).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// `localThresholdMS`: the maximum amount by which the latency of a server may exceed that of
    /// the fastest suitable server.
    pub local_threshold: Duration,
    /// The effective `heartbeatFrequencyMS`, which is part of every estimate of staleness.
    pub heartbeat_frequency: Duration,
    /// The strategy for choosing among the servers in the latency window.
    pub strategy: SelectionStrategy,
    /// The minimum wire version that the client supports.
    pub min_wire_version: i32,
    /// `enableOverloadRetargeting`: true if a retry avoids servers that were overloaded.
    #[doc(alias = "enableOverloadRetargeting")]
    pub retargets_overload: bool,
    /// The application's selector for every operation of the client.
    pub selector: Option<Arc<dyn Selector>>,
}

impl Settings {
    /// Creates the settings of a client with background monitors.
    pub fn new(options: &Options) -> Self {
        Self {
            local_threshold: options.local_threshold,
            heartbeat_frequency: options.monitor_frequency(),
            strategy: options.selection_strategy,
            min_wire_version: options.wire_versions.min,
            retargets_overload: options.enable_overload_retargeting,
            selector: None,
        }
    }

    /// Creates the settings of a single-threaded client, which has its own heartbeat frequency, and
    /// chooses at random because it never has other operations in progress.
    pub fn single_threaded(options: &Options) -> Self {
        Self {
            heartbeat_frequency: options.scan_frequency(),
            strategy: SelectionStrategy::Random,
            ..Self::new(options)
        }
    }

    /// Sets the application's selector.
    #[must_use]
    pub fn with_selector(mut self, selector: Arc<dyn Selector>) -> Self {
        self.selector = Some(selector);
        self
    }
}

impl Default for Settings {
    /// Returns the settings of a client with background monitors and default options.
    fn default() -> Self {
        Self::new(&Options::new(Vec::new()))
    }
}
