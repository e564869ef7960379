//! Recordings: inputs as events, and a deployment that replays them.

use alloc::sync::Arc;
use core::time::Duration;

use super::{Deployment, Input, Outputs};
use crate::{
    event::EventKind,
    monitor::MonitorConfig,
    options::{Detector, HandshakeOpcode, Options, Srv},
    rng::Rng,
    time::Instant,
};

/// An input with the data that a replay needs: the payload of the event
/// [`Input`](crate::event::EventKind::Input).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RecordedInput {
    /// The time at which the deployment handled the input.
    pub now: Instant,
    /// The input.
    pub input: Input,
    /// The setup of the deployment; present only with [`Input::Open`].
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub setup: Option<Setup>,
}

/// The configuration of a deployment's checks and look-ups, apart from the options of its topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Setup {
    /// The seed of the deployment's random numbers.
    pub seed: u64,
    /// `heartbeatFrequencyMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub heartbeat_frequency: Duration,
    /// `minHeartbeatFrequencyMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub min_heartbeat_frequency: Duration,
    /// `connectTimeoutMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::optional_nanos"))]
    pub connect_timeout: Option<Duration>,
    /// True to stream if the server supports it.
    pub streaming: bool,
    /// True if a failed check of a known server is retried before it is reported.
    pub retry_before_unknown: bool,
    /// The detector of silent servers.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub detector: Option<Detector>,
    /// The maximum random delay of background connections; see
    /// [`Options::spread`](crate::options::Options::spread).
    #[cfg_attr(feature = "serde", serde(default, with = "crate::encoding::nanos"))]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Duration::is_zero"))]
    pub spread: Duration,
    /// The time from a server's first streaming check to the first measurement of its round-trip
    /// time.
    #[cfg_attr(feature = "serde", serde(default, with = "crate::encoding::nanos"))]
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Duration::is_zero"))]
    pub ping_delay: Duration,
    /// The options of scans, in inline mode.
    pub scans: Option<ScanSetup>,
    /// `srvMaxHosts`.
    pub max_hosts: usize,
    /// The polled SRV record.
    pub srv: Option<Srv>,
}

/// The options of scans in inline mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct ScanSetup {
    /// `heartbeatFrequencyMS`: the time for which the outcome of a scan is valid.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub frequency: Duration,
    /// `serverSelectionTryOnce`.
    pub try_once: bool,
    /// `socketCheckIntervalMS`.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub socket_check_interval: Duration,
    /// True if a server is checked at once after its "not writable primary" error.
    pub immediate_check: bool,
}

impl Deployment {
    /// Creates a deployment that replays a recording and re-emits the recorded inputs as events.
    /// `options` are the recorded options; `setup` is the setup recorded with the first input.
    ///
    /// The same inputs at the same times yield the same outputs, except that requests lack the
    /// client's metadata and declared API.
    pub fn restored(mut options: Options, setup: &Setup) -> Self {
        let config = MonitorConfig {
            heartbeat_frequency: setup.heartbeat_frequency,
            min_heartbeat_frequency: setup.min_heartbeat_frequency,
            connect_timeout: setup.connect_timeout,
            streaming: setup.streaming,
            handshake: Arc::default(),
            server_api: None,
            handshake_opcode: HandshakeOpcode::default(),
            retry_before_unknown: setup.retry_before_unknown,
            detector: setup.detector,
            spread: setup.spread,
            ping_delay: setup.ping_delay,
        };
        options.srv.clone_from(&setup.srv);
        options.connect_timeout = setup.connect_timeout;
        let seed = Rng::new(setup.seed);
        let mut new = Self::new(options.clone(), Arc::new(config), seed).with_recorded_inputs();
        new.max_hosts = setup.max_hosts;
        if let Some(scans) = setup.scans {
            options.heartbeat_frequency = Some(scans.frequency);
            options.deviations.min_heartbeat_frequency = setup.min_heartbeat_frequency;
            options.server_selection_try_once = Some(scans.try_once);
            options.socket_check_interval = scans.socket_check_interval;
            options.deviations.single_threaded_immediate_check = scans.immediate_check;
            new = new.with_scans(&options);
        }
        new.with_srv_polling(&options)
    }

    /// Emits an input as an event if inputs are recorded, unless the topology is closed.
    pub(super) fn record(&self, now: Instant, input: impl FnOnce() -> Input, out: &mut Outputs) {
        if !self.records || self.is_closed() {
            return;
        }
        let input = input();
        let setup = (input == Input::Open).then(|| Setup {
            seed: self.seed,
            heartbeat_frequency: self.config.heartbeat_frequency,
            min_heartbeat_frequency: self.config.min_heartbeat_frequency,
            connect_timeout: self.config.connect_timeout,
            streaming: self.config.streaming,
            retry_before_unknown: self.config.retry_before_unknown,
            detector: self.config.detector,
            spread: self.config.spread,
            ping_delay: self.config.ping_delay,
            scans: self.inline.as_ref().map(|own| own.scans.setup),
            max_hosts: self.max_hosts,
            srv: self.srv.as_ref().map(|polling| polling.srv.clone()),
        });
        let recorded = RecordedInput { now, input, setup };
        out.emit(EventKind::Input(Arc::new(recorded)));
    }
}
