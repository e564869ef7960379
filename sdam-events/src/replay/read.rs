use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

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

use crate::{
    record::{Header, Origin, VERSION},
    sink::Interest,
};

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

/// A line with a selection event. The keys after `operationId` depend on the event.
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

/// Parses the header line, and returns the options and the origin.
pub(super) fn header(text: &str) -> Result<(Options, Origin), Box<str>> {
    #[derive(Deserialize)]
    struct Format {
        recording: String,
        version: u32,
    }

    let format: Format = parse(text)?;
    if format.recording != "sdam" {
        return Err(format!("a recording of `{}`, not of `sdam`", format.recording).into());
    }
    if format.version != VERSION {
        return Err(format!(
            "the recording has version {} of the format, and this program reads version {VERSION}: \
             use the version of sdam that has recorded it",
            format.version
        )
        .into());
    }
    let header = parse::<Header>(text)?;
    let epoch = header.epoch.map(Duration::from_nanos);
    let epoch = epoch.and_then(|epoch| UNIX_EPOCH.checked_add(epoch));
    Ok((header.options.into(), Origin { epoch }))
}

impl Record {
    /// Parses a line of a recording.
    pub(super) fn read(text: &str) -> Result<Self, Box<str>> {
        let line: Line = parse(text)?;
        let entry = match line.event {
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
        selection.operation.clone_from(&self.operation);
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
                let name = name.as_str();
                return Err(format!("of the keys {all}, {name} has {keys}").into());
            }
        })
    }
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
