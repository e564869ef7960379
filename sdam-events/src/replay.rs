//! Replay of recordings: checks that the recorded inputs have the recorded effects.
//!
//! ```no_run
//! use std::{fs::File, io::BufReader};
//! use sdam_events::replay::replay;
//!
//! let outcome = replay(BufReader::new(File::open("sdam.jsonl")?))?;
//! if let Some(divergence) = outcome.divergence {
//!     panic!("{divergence}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    io::{self, BufRead},
    sync::Arc,
};

use sdam_core::{
    address::ServerAddress,
    document::SharedDocument,
    error::Error,
    event::{Event, EventKind, EventName},
    hello::Hello,
    ids::{ObjectId, ServerId},
    machine::{Effect, Effects, Input, RecordedInput, TopologyMachine},
    options::Options,
    time::Instant,
    topology::TopologyDescription,
};

use crate::{record::Origin, sink::Interest};

use self::{
    lines::Lines,
    read::{Entry, Record},
};

mod lines;
mod read;
#[cfg(test)]
mod tests;

/// Feeds the inputs of a recording to a new [`TopologyMachine`], and compares its events and pool
/// commands with the recorded ones, up to the first difference.
///
/// # Errors
///
/// If the recording cannot be read, has an unsupported version, or lacks data to which it refers.
pub fn replay(recording: impl BufRead) -> Result<Outcome, ReplayError> {
    replay_to(recording, |_| {})
}

/// Replays like [`replay`], and calls `observe` with everything recorded up to the first
/// difference: inputs, heartbeats, selections, and the events and commands that match their
/// records, each with the number and the time of its record. Only configuration warnings are left
/// out.
///
/// # Errors
///
/// As [`replay`].
pub fn replay_to(
    recording: impl BufRead,
    mut observe: impl FnMut(&Event),
) -> Result<Outcome, ReplayError> {
    let mut lines = Lines::new(recording);
    let Some(line) = lines.next()? else {
        return Err(at(1, "the recording is empty".into()));
    };
    let header = read::header(&line.text).map_err(|reason| at(line.number, reason))?;
    let mut player = Replayer::new(header);
    // A recording may end anywhere, for instance because the program was killed.
    while let Some(line) = lines.next()? {
        let record = match Record::read(&line.text) {
            Ok(record) => record,
            Err(_) if !line.is_complete => {
                player.cut_off = Some(line.number);
                break;
            }
            Err(reason) => return Err(at(line.number, reason)),
        };
        let step = player
            .step(&record, &line.text)
            .map_err(|reason| at(line.number, reason))?;
        match step {
            Step::Silent => {}
            Step::Shows(event) => observe(&event),
            Step::Differs(replayed) => {
                return Ok(player.outcome(Some(Divergence {
                    line: line.number,
                    recorded: line.text,
                    replayed,
                })));
            }
        }
    }
    Ok(player.outcome(None))
}

/// The result of a replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The time and place at which the recording was made.
    pub origin: Origin,
    /// The recorded options.
    pub options: Options,
    /// The number of inputs fed to the machine.
    pub inputs: u64,
    /// The number of recorded events and commands that the replay reproduced.
    pub matched: u64,
    /// The first difference.
    pub divergence: Option<Divergence>,
    /// The number of the last line if it is incomplete; the line was ignored.
    pub cut_off: Option<u64>,
    /// The topology at the end, or at the first difference.
    pub description: Arc<TopologyDescription>,
}

/// A difference: a recorded event, and the machine's output at that point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The number of the recording's line, from 1.
    pub line: u64,
    /// The recorded line.
    pub recorded: String,
    /// The line that the machine produced; `None` if it produced no further event.
    pub replayed: Option<String>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}: recorded {}, replayed {}",
            self.line,
            self.recorded,
            self.replayed.as_deref().unwrap_or("nothing")
        )
    }
}

/// The error of a recording that cannot be replayed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// The recording cannot be read.
    Io(io::Error),
    /// A line is malformed.
    Malformed {
        /// The number of the line, from 1.
        line: u64,
        /// The problem with the line.
        reason: Box<str>,
    },
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => f.write_str("the recording cannot be read"),
            Self::Malformed { line, reason } => write!(f, "line {line} of the recording: {reason}"),
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Malformed { .. } => None,
        }
    }
}

fn at(line: u64, reason: Box<str>) -> ReplayError {
    ReplayError::Malformed { line, reason }
}

/// The result of comparing a line with the machine's effects.
enum Step {
    /// The line is an event that is neither replayed nor observed.
    Silent,
    /// The line is an input or an event. If the machine produces such events, it has produced this
    /// one.
    Shows(Box<Event>),
    /// The line that the machine produced instead.
    Differs(Option<String>),
}

/// A machine, and its effects that the recording has not shown yet.
struct Replayer {
    origin: Origin,
    options: Options,
    machine: Option<TopologyMachine>,
    addresses: BTreeMap<ServerId, ServerAddress>,
    /// The latest successful reply of each server.
    replies: BTreeMap<ServerId, SharedDocument>,
    expected: VecDeque<Event>,
    /// The event for the topology's end, held back until all heartbeats have ended.
    end: Option<Event>,
    inputs: u64,
    matched: u64,
    cut_off: Option<u64>,
}

impl Replayer {
    fn new((options, origin): (Options, Origin)) -> Self {
        Self {
            origin,
            options,
            machine: None,
            addresses: BTreeMap::new(),
            replies: BTreeMap::new(),
            expected: VecDeque::new(),
            end: None,
            inputs: 0,
            matched: 0,
            cut_off: None,
        }
    }

    /// Processes one line.
    fn step(&mut self, record: &Record, text: &str) -> Result<Step, Box<str>> {
        let kind = match &record.entry {
            Entry::Input(input) => {
                if let Some(missing) = self.expected.pop_front() {
                    return Ok(Step::Differs(Some(line(&missing)?)));
                }
                self.feed(record, input)?;
                EventKind::Input(Arc::new(input.clone()))
            }
            Entry::Heartbeat(kind) => {
                if let EventKind::ServerHeartbeatSucceeded {
                    heartbeat, reply, ..
                } = kind
                {
                    self.replies.insert(heartbeat.server, reply.clone());
                }
                kind.clone()
            }
            Entry::Selection(line) => line.event(self.description())?,
            Entry::Event(name) if !Self::is_replayed(*name) => return Ok(Step::Silent),
            Entry::Event(name) => {
                let expected = match self.expected.pop_front() {
                    None if *name == EventName::TopologyClosed => self.end.take(),
                    expected => expected,
                };
                let Some(event) = expected else {
                    return Ok(Step::Differs(None));
                };
                let replayed = line(&event)?;
                if consequence(&replayed) != consequence(text.trim()) {
                    return Ok(Step::Differs(Some(replayed)));
                }
                self.matched += 1;
                event.kind
            }
        };
        Ok(Step::Shows(Box::new(record.event(kind))))
    }

    /// Returns whether events with this name depend only on inputs.
    fn is_replayed(name: EventName) -> bool {
        Interest::DESCRIPTIONS
            .union(Interest::POOL_STATES)
            .contains(name)
    }

    fn feed(&mut self, record: &Record, input: &RecordedInput) -> Result<(), Box<str>> {
        self.inputs += 1;
        let (now, topology) = (record.at, record.topology);
        let mut machine = match self.machine.take() {
            Some(machine) => machine,
            None => TopologyMachine::new(&self.options, topology),
        };
        let effects = match input {
            RecordedInput::Error { server, report } => machine.handle_error(now, *server, report).1,
            input => machine.handle(now, self.input(input)?),
        };
        self.machine = Some(machine);
        self.expect(now, topology, effects);
        Ok(())
    }

    fn input<'i>(&self, recorded: &'i RecordedInput) -> Result<Input<'i>, Box<str>> {
        Ok(match recorded {
            RecordedInput::Open => Input::Open,
            RecordedInput::Close => Input::Close,
            RecordedInput::Checked { server, error, rtt } => Input::Checked {
                server: *server,
                outcome: match error {
                    Some(error) => Err(Error::clone(error)),
                    None => Ok(self.hello_of(*server)?),
                },
                rtt: *rtt,
            },
            RecordedInput::Handshake {
                server,
                generation,
                reply,
                rtt,
            } => Input::Handshake {
                server: *server,
                generation: *generation,
                hello: Hello::parse(reply).map_err(|error| error.to_string())?,
                rtt: *rtt,
            },
            RecordedInput::ServiceConnectionClosed {
                server,
                service,
                generation,
            } => Input::ServiceConnectionClosed {
                server: *server,
                service: *service,
                generation: *generation,
            },
            RecordedInput::Hosts(hosts) => Input::Hosts(hosts),
            RecordedInput::MonitorDied { server } => Input::MonitorDied { server: *server },
            other => return Err(format!("this version cannot replay {other:?}").into()),
        })
    }

    fn hello_of(&self, server: ServerId) -> Result<Hello, Box<str>> {
        let reply = self
            .replies
            .get(&server)
            .ok_or_else(|| format!("no heartbeat of server {server} came before its check"))?;
        Ok(Hello::parse(reply).map_err(|error| error.to_string())?)
    }

    /// Converts effects to the events that a recording contains for them.
    fn expect(&mut self, now: Instant, topology: ObjectId, effects: Effects) {
        for effect in effects {
            let kind = match effect {
                Effect::OpenServer {
                    server, address, ..
                } => {
                    self.addresses.insert(server, address);
                    continue;
                }
                Effect::CloseServer { server } => {
                    self.addresses.remove(&server);
                    continue;
                }
                Effect::Emit(kind) => kind,
                Effect::PoolReady { server } => match self.addresses.get(&server).cloned() {
                    Some(address) => EventKind::PoolReady { server, address },
                    None => continue,
                },
                Effect::PoolClear { server, clear } => match self.addresses.get(&server).cloned() {
                    Some(address) => EventKind::PoolCleared {
                        server,
                        address,
                        clear,
                    },
                    None => continue,
                },
                Effect::Publish(_)
                | Effect::ServerKnown { .. }
                | Effect::ResetRtt { .. }
                | Effect::CancelCheck { .. }
                | Effect::RequestCheck { .. } => continue,
            };
            let is_end = kind == EventKind::TopologyClosed;
            let event = Event::new(0, now, topology, kind);
            if is_end {
                self.end = Some(event);
            } else {
                self.expected.push_back(event);
            }
        }
    }

    fn description(&self) -> Arc<TopologyDescription> {
        let machine = self.machine.as_ref();
        machine
            .map(|machine| Arc::clone(machine.description()))
            .unwrap_or_default()
    }

    fn outcome(self, divergence: Option<Divergence>) -> Outcome {
        Outcome {
            description: self.description(),
            origin: self.origin,
            options: self.options,
            inputs: self.inputs,
            matched: self.matched,
            divergence,
            cut_off: self.cut_off,
        }
    }
}

fn line(event: &Event) -> Result<String, Box<str>> {
    serde_json::to_string(event).map_err(|error| error.to_string().into())
}

/// Returns a line without its number and times. The number also counts events that a replay does
/// not produce, and the queue adjusts the time of an event so that it is never before the previous
/// event.
fn consequence(line: &str) -> &str {
    let start = line.find(r#""topology""#).unwrap_or_default();
    line.get(start..).unwrap_or(line)
}
