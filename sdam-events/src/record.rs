//! Recordings of a topology: all its inputs and events, as lines of JSON.
//!
//! A recording can be replayed: the module [`replay`](crate::replay) feeds its inputs to a new
//! state machine and compares the effects. A recording from a user's machine can therefore serve as
//! a test.
//!
//! ```no_run
//! use std::{fs::File, io::BufWriter};
//! use sdam_core::options::Options;
//! use sdam_events::record::RecordSink;
//!
//! let options = Options::parse("mongodb://a,b/?replicaSet=rs")?;
//! let sink = RecordSink::new(BufWriter::new(File::create("sdam.jsonl")?), &options)?;
//! # drop(sink);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Format, version 1
//!
//! Each line is one JSON object. Absent values are `null`. Times are nanoseconds since the
//! runtime's epoch, durations are nanoseconds, ids are numbers (servers) or hexadecimal digits
//! (ObjectIds), BSON documents are base64. Replays compare lines literally, so any change to the
//! lines requires a new version.
//!
//! The first line is the header. `epoch` is the wall-clock time at time 0, in nanoseconds since
//! 1970; it may be `null`.
//!
//! ```json
//! {"recording":"sdam","version":1,"epoch":1700000000000000000,"options":{"seeds":["a:27017"],"directConnection":null,
//!  "loadBalanced":false,"replicaSet":"rs","initialTopologyType":null,
//!  "wireVersions":{"minWireVersion":8,"maxWireVersion":29},"driverName":"sdam","maxServers":1024,
//!  "handshakeErrorsMarkUnknown":false}}
//! ```
//!
//! Every other line has `seq`, `at`, `time` and `topology`, followed by either `event` with the
//! keys of the event, or `now` and `input`. The values are those of [`EventKind`] and
//! [`Input`](sdam_core::deployment::Input) as serialized by the feature `serde` of `sdam-core`.
//! `time` is wall-clock time in RFC 3339. `now` is the time at which the input was handled, and
//! `at` the time at which the event was queued.
//!
//! The input `Open` is accompanied by the [`setup`](sdam_core::deployment::Setup), which determines
//! the checks, look-ups and random numbers. A replay therefore needs only the header and the
//! inputs.
//!
//! ```json
//! {"seq":1,"at":0,"time":"2023-11-14T22:13:20.000Z","topology":"65f0c0ffee00000000000001","now":0,"input":"Open","setup":{"seed":7,
//!  "heartbeatFrequency":10000000000,"minHeartbeatFrequency":500000000,"connectTimeout":10000000000,
//!  "streaming":true,"retryBeforeUnknown":false,"scans":null,"maxHosts":0,"srv":null}}
//! {"seq":2,"at":0,"time":"2023-11-14T22:13:20.000Z","topology":"65f0c0ffee00000000000001","event":"TopologyOpening"}
//! {"seq":9,"at":7000000,"time":"2023-11-14T22:13:20.007Z","topology":"65f0c0ffee00000000000001","now":7000000,
//!  "input":{"Reply":{"conn":{"server":1,"role":"Check","number":1},"sent":2000000,"at":7000000,"reply":"BQAAAAA=",
//!  "moreToCome":false}}}
//! {"seq":10,"at":7000000,"time":"2023-11-14T22:13:20.007Z","topology":"65f0c0ffee00000000000001","event":"PoolReady","server":1,
//!  "address":"a:27017"}
//! ```
//!
//! A reply is written once, with the input; in the event `ServerHeartbeatSucceeded`, `reply` is
//! empty. The reply to a measurement of the round-trip time (role `Ping`) is written as `null` or
//! as its error, because nothing else in it affects what is recorded.
//!
//! | `event` | keys |
//! | --- | --- |
//! | `TopologyOpening`, `TopologyClosed`, `TopologyEmptied` | - |
//! | `TopologyDescriptionChanged` | `new`: `type`, `setName`, `maxElection`, `logicalSessionTimeoutMinutes`, `compatibilityError`, `servers` (address to type) |
//! | `ServerOpening`, `PoolReady` | `server`, `address` |
//! | `ServerClosed` | `server`, `address`, `reason` |
//! | `ServerDescriptionChanged` | `new`: `id`, `address`, `type`, `error`, `rtt`, and the other fields of the description by their names in hello |
//! | `ConfigWarning` | `option`, `value`, `reason`, `consequence` |
//! | `MembersIgnored` | `ignored`, `limit` |
//! | `SrvHostsIgnored` | `name`, `domain`, `hosts` |
//! | `SrvLookupFailed` | `name`, `error`, `next` |
//! | `ServerUnusable` | `server`, `address`, `obstacle` |
//! | `ServerSuspected` | `server`, `address`, `silence` |
//! | `ServerSuspicionEnded` | `server`, `address`, `duration`, `answered` |
//! | `ServerHeartbeatStarted` | `server`, `address`, `driverConnectionId`, `serverConnectionId`, `awaited` |
//! | `ServerHeartbeatSucceeded` | the same, `duration`, `reply` |
//! | `ServerHeartbeatFailed` | the same, `duration`, `error` |
//! | `PoolCleared` | `server`, `address`, `generation`, `serviceId`, `interruptInUse`, `wasPaused`, `error` |
//! | `ServerSelectionStarted`, ... (opt-in) | `selector`, `operation`, `operationId`, and `remaining`; `server`, `address`, `duration`; or `reason`, `failure`, `duration` |
//!
//! The description before a change is not repeated, because it is the description after the
//! preceding change.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sdam_core::{
    address::ServerAddress,
    event::{Event, EventKind, EventName},
    options::Options,
    server::WireVersions,
    time::Instant,
    topology::TopologyType,
};
use serde::{Deserialize, Serialize};

use crate::sink::{EventSink, Interest, lock};

#[cfg(test)]
mod tests;

/// The version of the format.
pub(crate) const VERSION: u32 = 1;

/// A sink that writes a recording of one topology.
///
/// Each line is written by a single call and, unless it belongs to a selection, is flushed, so that
/// the recording of a killed process is complete up to its last change or heartbeat. If selections
/// are recorded, use a buffered writer. Nothing more is written after an error, see
/// [`take_error`](Self::take_error), or after events were dropped: a recording with gaps could not
/// be replayed.
pub struct RecordSink<W> {
    out: Mutex<Out<W>>,
    selections: bool,
}

struct Out<W> {
    writer: W,
    error: Option<io::Error>,
    is_broken: bool,
}

impl<W: Write + Send + 'static> RecordSink<W> {
    /// Writes the header and creates the sink for a topology with these `options`.
    ///
    /// # Errors
    ///
    /// If `writer` returns an error.
    pub fn new(writer: W, options: &Options) -> io::Result<Self> {
        Self::with_origin(writer, options, &Origin::default())
    }

    /// Creates the sink like [`new`](Self::new), and writes `origin` into the header.
    ///
    /// # Errors
    ///
    /// If `writer` returns an error.
    pub fn with_origin(mut writer: W, options: &Options, origin: &Origin) -> io::Result<Self> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let epoch = origin.epoch;
        let header = Header {
            recording: "sdam".to_owned(),
            version: VERSION,
            epoch: epoch.map(|epoch| nanos(epoch.duration_since(UNIX_EPOCH).unwrap_or_default())),
            options: options.into(),
        };
        writer.write_all(text(&header)?.as_bytes())?;
        writer.flush()?;
        let out = Out { writer, error: None, is_broken: false };
        Ok(Self { out: Mutex::new(out), selections: false })
    }

    /// Records server selections as well. They are not needed for a replay.
    #[must_use]
    pub fn with_selections(mut self) -> Self {
        self.selections = true;
        self
    }

    /// Returns the error that ended the recording early. A second call returns `None`.
    pub fn take_error(&self) -> Option<io::Error> {
        lock(&self.out).error.take()
    }

    /// Flushes and returns the writer.
    ///
    /// # Errors
    ///
    /// Returns the first error that has occurred since the recording began.
    pub fn finish(self) -> io::Result<W> {
        let out = self.out.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Out { mut writer, error, .. } = out;
        match error {
            Some(error) => Err(error),
            None => writer.flush().map(|()| writer),
        }
    }
}

impl<W: Write> Out<W> {
    fn write(&mut self, event: &Event) -> io::Result<()> {
        if event.kind.name() == EventName::EventsDropped {
            self.writer.flush()?;
            return Err(io::Error::other(
                "events were dropped, and a recording with gaps cannot be replayed: use a faster writer",
            ));
        }
        self.writer.write_all(line(event)?.as_bytes())?;
        // Selections may be frequent and are not needed for a replay.
        if !Interest::SELECTION.contains(event.kind.name()) {
            self.writer.flush()?;
        }
        Ok(())
    }
}

impl<W: Write + Send + 'static> EventSink for RecordSink<W> {
    fn emit(&self, event: &Event) {
        let mut out = lock(&self.out);
        if !out.is_broken
            && let Err(error) = out.write(event)
        {
            out.is_broken = true;
            out.error = Some(error);
        }
    }

    fn interest(&self) -> Interest {
        let always = Interest::SDAM.union(Interest::POOL_STATES).union(EventName::Input.into());
        if self.selections { always.union(Interest::SELECTION) } else { always }
    }
}

sdam_core::opaque!(RecordSink<W>, |this| selections: this.selections);

/// The time at which a recording was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The wall-clock time of the runtime's epoch, [`Instant::EPOCH`]; `None` if it is unknown.
    pub epoch: Option<SystemTime>,
}

impl Origin {
    /// Creates the origin of a recording made now. `now` and `wall` are the same moment on the
    /// clock of the runtime and on the wall clock.
    pub fn at(now: Instant, wall: SystemTime) -> Self {
        Self { epoch: wall.checked_sub(now.since(Instant::EPOCH)) }
    }
}

/// Returns the line for an event, with its line break. The reply of a heartbeat is omitted, because
/// the preceding input contains it.
pub(crate) fn line(event: &Event) -> serde_json::Result<String> {
    let mut shortened = event.clone();
    if let EventKind::ServerHeartbeatSucceeded { reply, .. } = &mut shortened.kind {
        *reply = Vec::new().into();
    }
    text(&shortened)
}

fn text(line: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    Ok(text)
}

/// The first line of a recording.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    recording: String,
    version: u32,
    /// Nanoseconds since 1970.
    pub(crate) epoch: Option<u64>,
    pub(crate) options: RecordedOptions,
}

/// The options that influence the effects of inputs.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RecordedOptions {
    seeds: Vec<ServerAddress>,
    direct_connection: Option<bool>,
    load_balanced: bool,
    replica_set: Option<Arc<str>>,
    initial_topology_type: Option<TopologyType>,
    wire_versions: WireVersions,
    driver_name: Arc<str>,
    max_servers: usize,
    handshake_errors_mark_unknown: bool,
}

impl From<&Options> for RecordedOptions {
    fn from(options: &Options) -> Self {
        Self {
            seeds: options.seeds.clone(),
            direct_connection: options.direct_connection,
            load_balanced: options.load_balanced,
            replica_set: options.replica_set.clone(),
            initial_topology_type: options.initial_topology_type,
            wire_versions: options.wire_versions,
            driver_name: Arc::clone(&options.driver_name),
            max_servers: options.max_servers,
            handshake_errors_mark_unknown: options.deviations.handshake_errors_mark_unknown,
        }
    }
}

impl From<RecordedOptions> for Options {
    fn from(recorded: RecordedOptions) -> Self {
        let mut options = Self::new(recorded.seeds);
        options.direct_connection = recorded.direct_connection;
        options.load_balanced = recorded.load_balanced;
        options.replica_set = recorded.replica_set;
        options.initial_topology_type = recorded.initial_topology_type;
        options.wire_versions = recorded.wire_versions;
        options.driver_name = recorded.driver_name;
        options.max_servers = recorded.max_servers;
        options.deviations.handshake_errors_mark_unknown = recorded.handshake_errors_mark_unknown;
        options
    }
}
