//! The initial configuration of a deployment, and the context of the calls to the deployment.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    deployment::{Deployment, Timer},
    hello::Handshake,
    ids::ServerId,
    monitor::MonitorConfig,
    options::{Detector, Options, ServerMonitoringMode, Srv},
    rng::Rng,
    server::WireVersions,
};

use crate::step::{self, MEMBERS, members};

/// The initial configuration of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of a connection string")]
pub struct Start {
    /// A bit mask of the members that are seeds. If no bit is set, every member is a seed.
    pub seeds: u8,
    /// True for `directConnection=true`, which uses only the first seed.
    pub direct: bool,
    /// True if the client sets the option `replicaSet`.
    pub named: bool,
    /// The way in which servers are checked.
    pub mode: Mode,
    /// True if the seeds come from an SRV record, which is polled.
    pub srv: bool,
    /// True for `loadBalanced=true`, which uses only the first seed.
    pub balanced: bool,
    /// True if a detector of silent servers is enabled.
    pub detecting: bool,
}

impl Start {
    /// Three seeds with polling monitors, and no other options.
    pub const DISCOVERY: Self = Self {
        seeds: 0b111,
        direct: false,
        named: false,
        mode: Mode::Polling,
        srv: false,
        balanced: false,
        detecting: false,
    };

    /// Three members of a set with the streaming protocol.
    pub const STREAMING: Self = Self { named: true, mode: Mode::Streaming, ..Self::DISCOVERY };

    /// Two members of a set with the streaming protocol and a detector of silent servers.
    pub const DETECTING: Self = Self { seeds: 0b011, detecting: true, ..Self::STREAMING };

    /// One seed of a single-threaded client.
    pub const INLINE: Self = Self { seeds: 0b001, mode: Mode::Inline, ..Self::DISCOVERY };

    /// One seed from an SRV record.
    pub const SRV: Self = Self { seeds: 0b001, srv: true, ..Self::DISCOVERY };

    /// A load balancer.
    pub const BALANCED: Self = Self { seeds: 0b001, balanced: true, ..Self::DISCOVERY };

    /// The minimum time that the detector waits for an answer.
    pub(crate) const FLOOR: Duration = Duration::from_secs(1);

    /// The value of `minHeartbeatFrequencyMS`.
    pub(crate) const MINIMUM: Duration = Duration::from_millis(500);

    /// Returns `heartbeatFrequencyMS`. A round-trip measurement may begin early or late by up to a
    /// tenth of this value. This tenth is a multiple of the minimum wait, so that few distinct
    /// deadlines occur.
    pub(crate) fn heartbeat(self) -> Duration {
        match self.mode {
            Mode::Polling => Self::MINIMUM,
            Mode::Streaming | Mode::Inline => Duration::from_secs(5),
        }
    }

    /// Returns `connectTimeoutMS`.
    pub(crate) fn limit(self) -> Option<Duration> {
        (self.mode != Mode::Polling).then_some(Duration::from_secs(3))
    }

    pub(crate) fn is_inline(self) -> bool {
        self.mode == Mode::Inline
    }

    /// Creates the deployment, but does not open it.
    pub(crate) fn deployment(self) -> Deployment {
        let options = self.options();
        let handshake = Arc::new(Handshake::default());
        let mut config = MonitorConfig::new(&options, handshake, false);
        // With the usual delay, more steps would be needed to reach a measurement.
        config.ping_delay = Duration::ZERO;
        let mut deployment = Deployment::new(options.clone(), Arc::new(config), Rng::new(1));
        if self.is_inline() {
            deployment = deployment.with_scans(&options);
        }
        deployment.with_srv_polling(&options)
    }

    pub(crate) fn options(self) -> Options {
        let mask = match self.seeds % (1 << MEMBERS) {
            0 => 0b111,
            seeds => seeds,
        };
        let count = if self.direct || self.balanced { 1 } else { usize::from(MEMBERS) };
        let mut options = Options::new(members(mask).take(count).collect());
        options.load_balanced = self.balanced;
        options.direct_connection = (self.direct && !self.balanced).then_some(true);
        options.replica_set = (self.named && !self.balanced).then(|| step::SET.into());
        options.wire_versions = WireVersions { min: 0, max: 29 };
        options.heartbeat_frequency = Some(self.heartbeat());
        options.connect_timeout = self.limit();
        options.detector = self.detecting.then(|| {
            let mut detector = Detector::PROBING;
            detector.floor = Self::FLOOR;
            detector
        });
        options.srv = self.srv.then(|| Srv::new(step::DOMAIN));
        if self.mode != Mode::Streaming {
            options.server_monitoring_mode = ServerMonitoringMode::Poll;
        }
        options
    }
}

/// The way in which servers are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Mode {
    /// `serverMonitoringMode=poll` and `connectTimeoutMS=0`, with the shortest possible heartbeat
    /// interval.
    Polling,
    /// Checks that use the streaming protocol.
    Streaming,
    /// Checks only when a single-threaded client requests them.
    Inline,
}

/// The purpose of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    #[default]
    Other,
    /// The call handles the server's timer or connections.
    Server,
    /// The call handles the request of a single-threaded client.
    Request,
    /// The call handles an error that clears the connections to a service.
    Service,
}

/// The context in which the outputs of a call are checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    /// The server that the call concerns.
    pub(crate) about: Option<ServerId>,
    pub(crate) purpose: Purpose,
    /// True if the call delivers a reply after which the server will send further replies.
    pub(crate) streams: bool,
    /// The server's timer, if the call handles this timer.
    pub(crate) due: Option<Timer>,
    /// True if selections are waiting.
    pub(crate) wanted: bool,
}
