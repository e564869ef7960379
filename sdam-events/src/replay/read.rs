use std::{sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    deployment::{Input, RecordedInput, Setup},
    event::{Event, EventKind, EventName as Name, Selection, SelectionFailure},
    ids::{ObjectId, ServerId},
    options::Options,
    time::{Instant, UnixTime},
    topology::TopologyDescription,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::earlier::{self, Recorded};
use crate::{
    record::{Header, Origin, VERSION},
    sink::Interest,
};

/// The oldest version of the format that can be read.
const OLDEST: u32 = 2;

/// A line of the recording after the header.
pub(super) struct Record {
    pub(super) seq: u64,
    pub(super) at: Instant,
    pub(super) time: Option<UnixTime>,
    pub(super) topology: ObjectId,
    pub(super) entry: Entry,
}

pub(super) enum Entry {
    Input(Box<RecordedInput>),
    /// An input or a heartbeat in the format of an earlier version.
    EarlierInput(Recorded),
    EarlierHeartbeat(EventKind),
    Selection(SelectionLine),
    /// Any other event; a replay compares its line as a string.
    Event(Name),
}

/// The keys that every line has, and the name of the event, if the line has one.
#[derive(Deserialize)]
struct Line {
    seq: u64,
    at: Instant,
    time: Option<UnixTime>,
    topology: ObjectId,
    event: Option<Name>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "serde rejects keys without a field")]
struct InputLine {
    seq: u64,
    at: Instant,
    time: Option<UnixTime>,
    topology: ObjectId,
    now: Instant,
    input: Input,
    setup: Option<Setup>,
}

/// A line with a selection event. Which of the keys after `operationId` it has depends on the
/// event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "serde rejects keys without a field")]
pub(super) struct SelectionLine {
    seq: u64,
    at: Instant,
    time: Option<UnixTime>,
    topology: ObjectId,
    event: Name,
    selector: Box<str>,
    operation: Option<Box<str>>,
    operation_id: Option<i64>,
    remaining: Option<u64>,
    server: Option<ServerId>,
    address: Option<ServerAddress>,
    reason: Option<SelectionFailure>,
    failure: Option<Arc<str>>,
    duration: Option<u64>,
}

/// Parses the header line, and returns the version, the options and the origin.
pub(super) fn header(text: &str) -> Result<(u32, Options, Origin), Box<str>> {
    #[derive(Deserialize)]
    struct Format {
        recording: String,
        version: u32,
    }

    let format: Format = parse(text)?;
    if format.recording != "sdam" {
        return Err(format!("a recording of `{}`, not of `sdam`", format.recording).into());
    }
    if !(OLDEST..=VERSION).contains(&format.version) {
        let found = format.version;
        return Err(format!(
            "version {found} of the format, and only {OLDEST} to {VERSION} are known: \
             replay it with the version of sdam-events that has recorded it"
        )
        .into());
    }
    let header = parse::<Header>(text)?;
    let origin = header.origin();
    Ok((header.version, header.options.into(), origin))
}

impl Record {
    /// Parses a line of a recording in the given version of the format.
    pub(super) fn read(text: &str, version: u32) -> Result<Self, Box<str>> {
        let line: Line = parse(text)?;
        let entry = match line.event {
            None if earlier::is_of(version) => Entry::EarlierInput(earlier::input(text)?),
            Some(name) if earlier::is_of(version) && Interest::HEARTBEATS.contains(name) => {
                Entry::EarlierHeartbeat(earlier::heartbeat(text)?)
            }
            None => {
                let InputLine { now, input, setup, .. } = parse(text)?;
                Entry::Input(Box::new(RecordedInput { now, input, setup }))
            }
            Some(name) if Interest::SELECTION.contains(name) => Entry::Selection(parse(text)?),
            Some(name) => Entry::Event(name),
        };
        Ok(Self { seq: line.seq, at: line.at, time: line.time, topology: line.topology, entry })
    }

    /// Returns an event with the record's number and time.
    pub(super) fn event(&self, kind: EventKind) -> Event {
        let mut event = Event::new(self.seq, self.at, self.topology, kind);
        event.time = self.time;
        event
    }
}

impl SelectionLine {
    /// Returns the event for a selection that was made from `description`.
    pub(super) fn event(
        &self,
        description: Arc<TopologyDescription>,
    ) -> Result<EventKind, Box<str>> {
        let mut selection = Selection::new(self.selector.clone());
        if let Some(operation) = &self.operation {
            selection = selection.with_operation(operation.clone(), None);
        }
        selection.operation_id = self.operation_id;
        let selection = Arc::new(selection);
        let duration = self.duration.map(Duration::from_nanos);
        let success = self.server.zip(self.address.clone());
        let failure = self.reason.zip(self.failure.clone());
        Ok(match (self.event, duration, success, failure) {
            (Name::ServerSelectionStarted, None, None, None) => {
                EventKind::ServerSelectionStarted { selection, description }
            }
            (Name::ServerSelectionWaiting, None, None, None) => {
                let remaining = self.remaining.map(Duration::from_nanos);
                EventKind::ServerSelectionWaiting { selection, description, remaining }
            }
            (Name::ServerSelectionSucceeded, Some(duration), Some((server, address)), None) => {
                EventKind::ServerSelectionSucceeded {
                    selection,
                    description,
                    server,
                    address,
                    duration,
                }
            }
            (Name::ServerSelectionFailed, Some(duration), None, Some((reason, failure))) => {
                EventKind::ServerSelectionFailed {
                    selection,
                    description,
                    reason,
                    failure,
                    duration,
                }
            }
            (name, ..) => {
                let keys = match name {
                    Name::ServerSelectionSucceeded => "`server`, `address` and `duration`",
                    Name::ServerSelectionFailed => "`reason`, `failure` and `duration`",
                    _ => "none",
                };
                let all = "`server`, `address`, `reason`, `failure` and `duration`";
                return Err(misfit(name, all, keys));
            }
        })
    }
}

pub(super) fn misfit(name: Name, all: &str, keys: &str) -> Box<str> {
    format!("of the keys {all}, {} has {keys}", name.as_str()).into()
}

/// Parses one line. The error names the column, and the expected field or value.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Box<str>> {
    serde_json::from_str(text).map_err(|error| {
        let column = error.column();
        let text = error.to_string();
        let reason = text.trim_end_matches(&format!(" at line 1 column {column}"));
        format!("column {column}: {reason}").into()
    })
}
