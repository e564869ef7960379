//! Replays recordings, and checks that the recorded inputs produce the recorded outputs.
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
    io::{self, BufRead, Read},
    mem,
    sync::Arc,
};

use sdam_core::{
    address::ServerAddress,
    deployment::{Deployment, Output},
    event::{Event, EventKind, EventName},
    ids::ServerId,
    options::Options,
    topology::TopologyDescription,
};

use crate::{
    record::{self, Origin},
    sink::Interest,
};

use self::read::{Entry, Record};

mod read;
#[cfg(test)]
mod tests;

/// Passes the inputs of a recording to a new [`Deployment`], and compares the deployment's events
/// and pool commands with the recorded ones, up to the first difference.
///
/// # Errors
///
/// If the recording cannot be read, has another version of the format, or lacks data to which it
/// refers.
pub fn replay(recording: impl BufRead) -> Result<Outcome, ReplayError> {
    replay_to(recording, |_, _| {})
}

/// Replays a recording like [`replay`], and calls `observe` with the inputs, the selections, and
/// the events and commands that match their records, up to the first difference. Warnings about
/// options are left out. Each event is passed with the number of its line, and has the sequence
/// number and the time from that line. Round-trip times, which are not recorded, are passed at the
/// point where they were measured, with the line of the preceding event.
///
/// # Errors
///
/// The same as for [`replay`].
pub fn replay_to(
    recording: impl BufRead,
    mut observe: impl FnMut(u64, &Event),
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
        let step = player.step(&record, &line.text).map_err(|reason| at(line.number, reason))?;
        if let Step::Differs(replayed) = step {
            return Ok(player.outcome(Some(Divergence {
                line: line.number,
                recorded: line.text,
                replayed,
            })));
        }
        for kind in player.shown.drain(..) {
            observe(line.number, &record.event(kind));
        }
    }
    Ok(player.outcome(None))
}

/// The result of a replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The time at which the recording was made.
    pub origin: Origin,
    /// The recorded options.
    pub options: Options,
    /// The number of inputs passed to the machine.
    pub inputs: u64,
    /// The number of recorded events and commands that the replay reproduced.
    pub matched: u64,
    /// The first difference.
    pub divergence: Option<Divergence>,
    /// The number of the last line, if that line is incomplete and was therefore ignored.
    pub cut_off: Option<u64>,
    /// The topology at the end, or at the first difference.
    pub description: Arc<TopologyDescription>,
}

/// A difference between a recorded event and the machine's output at that point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The number of the line in the recording, counted from 1.
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

/// The reason why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The recording cannot be read.
    #[error("the recording cannot be read")]
    Io(#[from] io::Error),
    /// A line is malformed.
    #[error("line {line} of the recording: {reason}")]
    Malformed {
        /// The number of the line, counted from 1.
        line: u64,
        /// The problem with the line.
        reason: Box<str>,
    },
}

fn at(line: u64, reason: Box<str>) -> ReplayError {
    ReplayError::Malformed { line, reason }
}

/// The result of comparing a line with the machine's outputs.
enum Step {
    /// The machine has produced the line, or never produces lines of this kind.
    Agrees,
    /// The line that the machine produced instead.
    Differs(Option<String>),
}

/// A deployment, with those of its events that have not been matched with the recording yet.
struct Replayer {
    origin: Origin,
    options: Options,
    /// `None` until the first input.
    deployment: Option<Box<Deployment>>,
    addresses: BTreeMap<ServerId, ServerAddress>,
    expected: VecDeque<EventKind>,
    /// The events to observe, in order.
    shown: Vec<EventKind>,
    /// True if `TopologyClosed` is held back until all heartbeats have ended.
    ends: bool,
    inputs: u64,
    matched: u64,
    cut_off: Option<u64>,
}

impl Replayer {
    fn new((options, origin): (Options, Origin)) -> Self {
        Self {
            origin,
            options,
            deployment: None,
            addresses: BTreeMap::new(),
            expected: VecDeque::new(),
            shown: Vec::new(),
            ends: false,
            inputs: 0,
            matched: 0,
            cut_off: None,
        }
    }

    /// Processes one line.
    fn step(&mut self, record: &Record, text: &str) -> Result<Step, Box<str>> {
        if matches!(record.entry, Entry::Input(_))
            && let Some(missing) = self.expected.pop_front()
        {
            return Ok(Step::Differs(Some(line(record, missing)?)));
        }
        match &record.entry {
            Entry::Input(recorded) => {
                let deployment = if let Some(deployment) = &mut self.deployment {
                    deployment
                } else {
                    let setup = recorded.setup.as_ref();
                    let setup = setup.ok_or("the first input is not `Open` with a `setup`")?;
                    let options = self.options.clone();
                    let new = Deployment::restored(options, setup);
                    self.deployment.insert(Box::new(new))
                };
                let outputs = deployment.handle(recorded.now, recorded.input.clone());
                self.expect(outputs);
            }
            Entry::Selection(line) => self.shown.push(line.event(self.description())?),
            Entry::Event(name) if is_replayed(*name) => {
                let expected = match self.expected.pop_front() {
                    None if *name == EventName::TopologyClosed && mem::take(&mut self.ends) => {
                        Some(EventKind::TopologyClosed)
                    }
                    expected => expected,
                };
                let Some(kind) = expected else {
                    return Ok(Step::Differs(None));
                };
                let replayed = line(record, kind.clone())?;
                if replayed != text.trim() {
                    return Ok(Step::Differs(Some(replayed)));
                }
                self.matched += 1;
                self.shown.push(kind);
            }
            Entry::Event(_) => {}
        }
        self.show();
        Ok(Step::Agrees)
    }

    /// Converts outputs to the events that a recording contains for them.
    fn expect(&mut self, outputs: impl IntoIterator<Item = Output>) {
        self.inputs += 1;
        for output in outputs {
            match output {
                Output::OpenServer { server, address, .. } => {
                    self.addresses.insert(server, address);
                }
                Output::CloseServer { server } => {
                    self.addresses.remove(&server);
                }
                Output::Emit(EventKind::TopologyClosed) => self.ends = true,
                Output::Emit(kind) => self.expected.push_back(kind),
                Output::PoolReady { server } => {
                    let address = self.addresses.get(&server).cloned();
                    let ready = address.map(|address| EventKind::PoolReady { server, address });
                    self.expected.extend(ready);
                }
                Output::PoolClear { server, clear } if !clear.was_paused => {
                    let address = self.addresses.get(&server).cloned();
                    let cleared =
                        address.map(|address| EventKind::PoolCleared { server, address, clear });
                    self.expected.extend(cleared);
                }
                // No events are recorded for these outputs: the next inputs show how the client
                // carried them out.
                _ => {}
            }
        }
    }

    /// Queues for the observer those inputs and measurements that precede the next event that has
    /// to match a line.
    fn show(&mut self) {
        while let Some(next) = self.expected.front()
            && Interest::INPUTS.contains(next.name())
        {
            self.shown.extend(self.expected.pop_front());
        }
    }

    fn description(&self) -> Arc<TopologyDescription> {
        let deployment = self.deployment.as_ref();
        deployment.map(|deployment| Arc::clone(deployment.description())).unwrap_or_default()
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

/// Returns whether a deployment produces events with this name.
fn is_replayed(name: EventName) -> bool {
    let names = Interest::SDAM.without(EventName::ConfigWarning.into());
    names.union(Interest::POOL_STATES).contains(name)
}

/// Returns the line of an event. The number and the times are those of `record`, because a replay
/// does not produce all recorded events, and the queue adjusts times so that they never go back.
fn line(record: &Record, kind: EventKind) -> Result<String, Box<str>> {
    let mut line = record::line(&record.event(kind)).map_err(|error| error.to_string())?;
    line.truncate(line.trim_end().len());
    Ok(line)
}

/// The maximum length of a line: an error may contain a reply of 48 MB, which base64 makes longer.
const LIMIT: usize = 128 << 20;

/// The non-empty lines of a recording.
struct Lines<R> {
    recording: R,
    number: u64,
}

/// A line without its line break.
struct Line {
    /// The number of the line, counted from 1.
    number: u64,
    text: String,
    /// True if a line break follows. The last line may be incomplete if the program was killed.
    is_complete: bool,
}

impl<R: BufRead> Lines<R> {
    fn new(recording: R) -> Self {
        Self { recording, number: 0 }
    }

    /// Reads the next line; `None` at the end.
    fn next(&mut self) -> Result<Option<Line>, ReplayError> {
        let mut bytes = Vec::new();
        loop {
            self.number += 1;
            bytes.clear();
            let mut line = (&mut self.recording).take(LIMIT as u64);
            if line.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            if bytes.len() == LIMIT {
                let reason = "longer than 128 MiB, which no line of a recording is";
                return Err(at(self.number, reason.into()));
            }
            if !bytes.trim_ascii().is_empty() {
                break;
            }
        }
        let is_complete = bytes.ends_with(b"\n");
        bytes.truncate(bytes.trim_ascii_end().len());
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            // An incomplete line may end inside a character.
            Err(error) if !is_complete => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            Err(error) => return Err(at(self.number, error.to_string().into())),
        };
        Ok(Some(Line { number: self.number, text, is_complete }))
    }
}
