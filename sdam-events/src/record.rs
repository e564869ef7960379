//! Recordings of a topology: all its inputs and all its events, as lines of JSON.
//!
//! A recording can be replayed: feature `replay` feeds its inputs to a new state machine and
//! compares the effects. So a recording from a user's machine can serve as a test.
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
//! Each line is one JSON object. Keys whose value is absent are left out. Times are nanoseconds
//! since the runtime's epoch, durations are nanoseconds, ids are numbers (servers) or hexadecimal
//! digits (ObjectIds), BSON documents are base64. Replays compare lines literally, so any change to
//! them raises the version.
//!
//! The first line is the header:
//!
//! ```json
//! {"recording":"sdam","version":1,"options":{"seeds":["a:27017"],"replicaSet":"rs","loadBalanced":false,
//!  "minWireVersion":8,"maxWireVersion":29,"driverName":"sdam","maxServers":1024,
//!  "handshakeErrorsMarkUnknown":false}}
//! ```
//!
//! Every other line has `seq` and `at`, and then either `event` or `input`.
//!
//! | `event` | keys |
//! | --- | --- |
//! | `TopologyOpening` | `topology` |
//! | `TopologyDescriptionChanged` | `new`: `type`, `setName`, `maxElectionId`, `maxSetVersion`, `logicalSessionTimeoutMinutes`, `compatibilityError`, `servers` (address to type) |
//! | `TopologyClosed`, `TopologyEmptied` | - |
//! | `ServerOpening`, `ServerClosed` | `server`, `address` |
//! | `ServerDescriptionChanged` | `server`, `address`, `new`: the fields of the description by their names in hello, `type`, `error` |
//! | `ConfigWarning` | `option`, `value`, `reason`, `consequence` |
//! | `MembersIgnored` | `ignored`, `limit` |
//! | `ServerHeartbeatStarted` | `server`, `address`, `driverConnectionId`, `serverConnectionId`, `awaited` |
//! | `ServerHeartbeatSucceeded` | the same, `duration`, `reply` |
//! | `ServerHeartbeatFailed` | the same, `duration`, `error` |
//! | `PoolReady` | `server`, `address` |
//! | `PoolCleared` | `server`, `address`, `generation`, `serviceId`, `interruptInUse`, `error` |
//! | `ServerSelectionStarted`, ... (opt-in) | `selector`, `operation`, `operationId`, and `remaining`; `server`, `address`, `duration`; or `reason`, `failure`, `duration` |
//!
//! The description before a change is not repeated: it is the one after the preceding change.
//!
//! | `input` | keys |
//! | --- | --- |
//! | `Open`, `Close` | - |
//! | `Checked` | `server`; `error`, or the reply is the one of the server's latest `ServerHeartbeatSucceeded`; `rtt`: `average`, `minimum`, `p90` |
//! | `Handshake` | `server`, `generation`, `reply`, `rtt` |
//! | `ServiceConnectionClosed` | `server`, `serviceId`, `generation` |
//! | `AppError` | `server`, `generation`, `serviceId`, `phase`, `maxWireVersion`, and one of `network`: `timeout`, `labels`, `message`; `reply`; `auth`: `message` |
//! | `Hosts` | `hosts` |
//! | `MonitorDied` | `server` |
//!
//! An `error` has `kind`, `stage`, `code`, `codeName`, `labels`, `message`, `topologyVersion`; a
//! `topologyVersion` has `processId` and `counter`.

use std::{
    fmt,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use sdam_core::{
    address::ServerAddress,
    event::{Event, EventName},
    options::Options,
};

use crate::{
    sink::{EventSink, Interest},
    text::Object,
};

mod line;
#[cfg(test)]
mod tests;

pub use line::line;

/// The version of the format.
pub const VERSION: u32 = 1;

/// A sink that writes a recording of one topology.
///
/// Lines are written one by one, so use a buffered writer. It is flushed when the topology is
/// closed. Nothing more is written after an error, see [`take_error`](Self::take_error), or after
/// events were dropped: a recording with gaps could not be replayed.
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
    /// Writes the header and creates the sink; `options` are those of the topology.
    pub fn new(mut writer: W, options: &Options) -> io::Result<Self> {
        let mut text = header(options);
        text.push('\n');
        writer.write_all(text.as_bytes())?;
        let out = Out {
            writer,
            error: None,
            is_broken: false,
        };
        Ok(Self {
            out: Mutex::new(out),
            selections: false,
        })
    }

    /// Records server selections as well. They are not needed for a replay.
    #[must_use]
    pub fn with_selections(mut self) -> Self {
        self.selections = true;
        self
    }

    /// Returns the error that has ended the recording early, once.
    pub fn take_error(&self) -> Option<io::Error> {
        self.lock().error.take()
    }

    /// Flushes and returns the writer.
    ///
    /// # Errors
    ///
    /// The first error of the whole recording.
    pub fn finish(self) -> io::Result<W> {
        let out = self
            .out
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let Out {
            mut writer, error, ..
        } = out;
        match error {
            Some(error) => Err(error),
            None => writer.flush().map(|()| writer),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Out<W>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> Out<W> {
    fn write(&mut self, event: &Event) -> io::Result<()> {
        if event.kind.name() == EventName::EventsDropped {
            self.writer.flush()?;
            return Err(io::Error::other(
                "events came faster than they could be written",
            ));
        }
        let mut text = line(event);
        text.push('\n');
        self.writer.write_all(text.as_bytes())?;
        if event.kind.name() == EventName::TopologyClosed {
            self.writer.flush()?;
        }
        Ok(())
    }
}

impl<W: Write + Send + 'static> EventSink for RecordSink<W> {
    fn emit(&self, event: &Event) {
        let mut out = self.lock();
        if out.is_broken {
            return;
        }
        if let Err(error) = out.write(event) {
            out.is_broken = true;
            out.error = Some(error);
        }
    }

    fn interest(&self) -> Interest {
        let always = Interest::SDAM
            .union(Interest::POOLS)
            .union(Interest::INPUTS);
        if self.selections {
            always.union(Interest::SELECTION)
        } else {
            always
        }
    }
}

impl<W> fmt::Debug for RecordSink<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSink")
            .field("selections", &self.selections)
            .finish_non_exhaustive()
    }
}

/// Returns the header line of a recording.
fn header(options: &Options) -> String {
    let mut out = String::new();
    Object::write(&mut out, |header| {
        header.text("recording", "sdam");
        header.plain("version", Some(VERSION));
        header.object("options", |object| {
            object.texts("seeds", options.seeds.iter().map(ServerAddress::as_str));
            object.plain("directConnection", options.direct_connection);
            object.plain("loadBalanced", Some(options.load_balanced));
            object.show("replicaSet", options.replica_set.as_deref());
            object.show("initialTopologyType", options.initial_topology_type);
            object.plain("minWireVersion", Some(options.wire_versions.min));
            object.plain("maxWireVersion", Some(options.wire_versions.max));
            object.text("driverName", &options.driver_name);
            object.plain("maxServers", Some(options.max_servers));
            let strict = options.handshake_errors_mark_unknown;
            object.plain("handshakeErrorsMarkUnknown", Some(strict));
        });
    });
    out
}
