use base64::{Engine as _, engine::general_purpose::STANDARD};
use sdam_core::{
    address::ServerAddress,
    event::EventName,
    ids::{ObjectId, ServerId},
    machine::RecordedInput,
    options::Options,
    time::Instant,
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::record::{Header, VERSION};

/// A line of the recording after the header.
pub(super) struct Record {
    pub(super) seq: u64,
    pub(super) at: Instant,
    pub(super) topology: ObjectId,
    pub(super) entry: Entry,
}

pub(super) enum Entry {
    Input(RecordedInput),
    /// The reply of a successful heartbeat.
    Reply {
        server: ServerId,
        reply: Vec<u8>,
    },
    /// Any other event; a replay compares its line as text.
    Event(EventName),
}

/// The keys of every line, and the name of an event.
#[derive(Deserialize)]
struct Line {
    seq: u64,
    at: Instant,
    topology: ObjectId,
    event: Option<EventName>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a key without a field would be refused")]
struct InputLine {
    seq: u64,
    at: Instant,
    topology: ObjectId,
    input: RecordedInput,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "a key without a field would be refused")]
struct ReplyLine {
    seq: u64,
    at: Instant,
    topology: ObjectId,
    event: EventName,
    server: ServerId,
    address: ServerAddress,
    driver_connection_id: u64,
    server_connection_id: Option<i64>,
    awaited: bool,
    duration: u64,
    reply: String,
}

/// Reads the options of a header line.
pub(super) fn options(text: &str) -> Result<Options, Box<str>> {
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
        let found = format.version;
        return Err(format!(
            "version {found} of the format, and only {VERSION} is known: \
             replay it with the version of sdam-events that has recorded it"
        )
        .into());
    }
    Ok(parse::<Header>(text)?.options.into())
}

impl Record {
    pub(super) fn read(text: &str) -> Result<Self, Box<str>> {
        let line: Line = parse(text)?;
        let entry = match line.event {
            None => Entry::Input(parse::<InputLine>(text)?.input),
            Some(EventName::ServerHeartbeatSucceeded) => {
                let line: ReplyLine = parse(text)?;
                let reply = STANDARD.decode(line.reply);
                Entry::Reply {
                    server: line.server,
                    reply: reply.map_err(|error| format!("`reply` is not base64: {error}"))?,
                }
            }
            Some(name) => Entry::Event(name),
        };
        Ok(Self {
            seq: line.seq,
            at: line.at,
            topology: line.topology,
            entry,
        })
    }
}

/// Parses one line. The error names the column and the field or what was expected there.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Box<str>> {
    serde_json::from_str(text).map_err(|error| {
        let column = error.column();
        let text = error.to_string();
        let reason = text.trim_end_matches(&format!(" at line 1 column {column}"));
        format!("column {column}: {reason}").into()
    })
}
