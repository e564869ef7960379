//! Options that deviate from the specifications.

use core::time::Duration;

use super::MIN_HEARTBEAT_FREQUENCY;

/// Deviations from the specifications, for tests of drivers and for drivers that keep the behaviour
/// of earlier versions. Applications should not change them, and connection strings cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deviations {
    /// The minimum time between two checks of a server, and the minimum `heartbeatFrequencyMS`; at
    /// least 1 ms.
    ///
    /// Only tests of drivers should change this time. The specification fixes it at
    /// [500 ms](MIN_HEARTBEAT_FREQUENCY), but runners of the unified test format reduce it to
    /// 50 ms.
    #[doc(alias = "minHeartbeatFrequencyMS")]
    pub min_heartbeat_frequency: Duration,
    /// True to retry a failed check on a new connection before marking the server Unknown, as SDAM
    /// 2.11 did.
    pub retry_before_unknown: bool,
    /// True if every failure to establish a connection marks the server Unknown, as before overload
    /// error labels existed.
    pub handshake_errors_mark_unknown: bool,
    /// True if single-threaded clients check a server at once after its "not writable primary"
    /// error, as SDAM 2.11 did.
    pub single_threaded_immediate_check: bool,
}

impl Default for Deviations {
    /// Returns options without any deviation.
    fn default() -> Self {
        Self {
            min_heartbeat_frequency: MIN_HEARTBEAT_FREQUENCY,
            retry_before_unknown: false,
            handshake_errors_mark_unknown: false,
            single_threaded_immediate_check: false,
        }
    }
}
