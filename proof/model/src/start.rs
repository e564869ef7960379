//! The configuration of a deployment, and the calls of it.

use std::time::Duration;

use sdam_core::{
    deployment::Timer,
    ids::ServerId,
    options::{Options, ServerMonitoringMode},
    server::WireVersions,
};

use crate::step::{self, MEMBERS, members};

/// The initial configuration of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Start {
    /// The seeds, one bit each; none means all.
    pub seeds: u8,
    /// `directConnection=true`, which uses the first seed alone.
    pub direct: bool,
    /// True if `replicaSet` is given.
    pub named: bool,
    /// False for `serverMonitoringMode=poll`, `connectTimeoutMS=0` and heartbeats that are as frequent
    /// as possible.
    pub streaming: bool,
}

impl Start {
    /// Three seeds that are polled, and no other options.
    pub const DISCOVERY: Self = Self {
        seeds: 0b111,
        direct: false,
        named: false,
        streaming: false,
    };

    /// Three members of a set that stream.
    pub const STREAMING: Self = Self {
        named: true,
        streaming: true,
        ..Self::DISCOVERY
    };

    /// `minHeartbeatFrequencyMS`.
    pub(crate) const MINIMUM: Duration = Duration::from_millis(500);

    /// Returns `heartbeatFrequencyMS`. Its tenth, by which measurements may be late, is a multiple of
    /// the least wait, so that deadlines have few distances.
    pub(crate) fn heartbeat(self) -> Duration {
        if self.streaming {
            Duration::from_secs(5)
        } else {
            Self::MINIMUM
        }
    }

    /// Returns `connectTimeoutMS`.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.streaming.then_some(Duration::from_secs(3))
    }

    pub(crate) fn options(self) -> Options {
        let mask = match self.seeds % (1 << MEMBERS) {
            0 => 0b111,
            seeds => seeds,
        };
        let count = if self.direct { 1 } else { usize::from(MEMBERS) };
        let mut options = Options::new(members(mask).take(count).collect());
        options.direct_connection = self.direct.then_some(true);
        options.replica_set = self.named.then(|| step::SET.into());
        options.wire_versions = WireVersions { min: 0, max: 29 };
        options.heartbeat_frequency = Some(self.heartbeat());
        options.connect_timeout = self.limit();
        if !self.streaming {
            options.server_monitoring_mode = ServerMonitoringMode::Poll;
        }
        options
    }
}

/// A call of the deployment, as its outputs are judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// The server that the call is for.
    pub(crate) about: Option<ServerId>,
    /// True if the call is for the server's timer or connections.
    pub(crate) own: bool,
    /// True if the call brings a reply after which the server sends more.
    pub(crate) streams: bool,
    /// True if the call is for the server's timer.
    pub(crate) due: Option<Timer>,
    /// True if selections are waiting.
    pub(crate) wanted: bool,
}
