//! `replay`: applies the replies and errors in a text file to a topology, and shows the effects.
//!
//! There are no connections: the state machine of `sdam-core` processes each line, and the new
//! state is printed.

mod application_error;
mod line;
#[cfg(test)]
mod tests;
mod trace;

use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use sdam_core::{
    address::ServerAddress,
    error::Error,
    error::ErrorOutcome,
    hello::Hello,
    machine::{Input, TopologyMachine},
    options::{Options, Warning},
    server::{Rtt, ServerDescription},
    time::Instant,
};
use serde_json::Value;

use self::{application_error::ApplicationError, line::Step};
use crate::{
    exit::Exit,
    failure::Failure,
    file_error::cannot_read,
    input,
    json::{self, RoundTrips},
    terminal::json_line,
};

pub use self::trace::trace;

/// The text that the help shows after the options.
const AFTER: &str = r#"Each line is a JSON object:

  {"uri":"mongodb://a,b/?replicaSet=rs"}         first: the client's connection string
  {"address":"a:27017","reply":{"ok":1, ...}}    a check succeeded with this hello,
                                                 in extended JSON
  {"address":"a:27017","error":"network"}        a check failed: "network",
                                                 "timeout" or "command"
  {"address":"a:27017","applicationError":       an operation failed, as in the
    {"when":"afterHandshakeCompletes",           tests of the specification;
     "type":"network","maxWireVersion":21}}      "command" needs a "response"

Empty lines are skipped. An invalid line is reported with its file and number, and skipped.

Exit codes: 0 done, 1 some lines were invalid, 2 with --trace: the new client behaves differently,
3 the command line is wrong, 4 another failure.

Example:
  echo '{"uri":"mongodb://a,b/?replicaSet=rs"}' | sdam replay"#;

/// Shows how a client interprets the replies and errors of servers.
///
/// Reads one JSON object per line, and prints the description of the topology after each.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    /// The lines; `-` is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub lines: PathBuf,
    /// Replay the inputs of a client, as recorded by `sdam watch --record FILE`, in a new client,
    /// and print the description of the topology after each change. `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "lines")]
    pub trace: Option<PathBuf>,
}

/// Replays the lines or the recording that `arguments` name.
///
/// # Errors
///
/// If writing to a stream fails. Other errors are printed and set the exit code.
pub fn run(arguments: &Arguments, output: impl Write, mut remarks: impl Write) -> io::Result<Exit> {
    let path = arguments.trace.as_deref().unwrap_or(&arguments.lines);
    let name = input::name(path);
    match input::open(path) {
        Ok(file) if arguments.trace.is_some() => trace(&name, file, output, remarks),
        Ok(file) => lines(&name, file, output, remarks),
        Err(error) => Failure::config(cannot_read(name, &error)).report(&mut remarks),
    }
}

/// Replays the lines of `input`, which is called `name` in error messages. Prints the state after
/// each line to `output`, and errors to `remarks`.
///
/// # Errors
///
/// If writing to an output fails. An invalid line leads to [`Exit::BAD_LINES`].
pub fn lines(
    name: &str,
    mut input: impl BufRead,
    mut output: impl Write,
    mut remarks: impl Write,
) -> io::Result<Exit> {
    let mut replay = Replay::default();
    let mut exit = Exit::SUCCESS;
    let mut bytes = Vec::new();
    for number in 1_u64.. {
        bytes.clear();
        match input::read_line(&mut input, number, &mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                writeln!(remarks, "error: {name}: {error}")?;
                exit = Exit::BAD_LINES;
                break;
            }
            Err(error) => return Failure::config(cannot_read(name, &error)).report(&mut remarks),
        }
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        if number == 1 && is_recording(&bytes) {
            let remedy = format!("use `sdam replay --trace {name}`");
            return Failure::config(format!("{name}: it is a recording: {remedy}"))
                .report(&mut remarks);
        }
        match replay.line(&bytes) {
            Ok((snapshot, said)) => {
                for remark in said {
                    writeln!(remarks, "note: {name}:{number}: {remark}")?;
                }
                writeln!(output, "{}", json_line(&snapshot))?;
            }
            Err(error) => {
                writeln!(remarks, "error: {name}:{number}: {error}")?;
                exit = Exit::BAD_LINES;
            }
        }
    }
    output.flush()?;
    Ok(exit)
}

/// Returns whether the line is the header of a recording.
fn is_recording(line: &[u8]) -> bool {
    let header = serde_json::from_slice(line);
    header.is_ok_and(|header: Value| header.get("recording").is_some())
}

/// A topology that is driven by lines of text instead of servers.
#[derive(Debug, Default)]
pub struct Replay {
    /// The topology; `None` until the first line.
    topology: Option<TopologyMachine>,
    now: Instant,
}

impl Replay {
    /// Processes one line, with or without its line break. Returns the topology as JSON, and
    /// explanations that the JSON does not contain.
    ///
    /// # Errors
    ///
    /// If the line is invalid. The topology is then unchanged.
    pub fn line(&mut self, line: &[u8]) -> Result<(Value, Vec<String>), String> {
        let step = Step::parse(line)?;
        let remarks = match (&mut self.topology, step) {
            (None, Step::Start(options)) => self.start(&options),
            (None, _) => return Err(r#"the first line must be {"uri":"mongodb://..."}"#.into()),
            (Some(_), Step::Start(_)) => return Err("the topology is already started".into()),
            (Some(topology), step) => {
                // Only the order of the lines matters, so the time between them is arbitrary.
                self.now = self.now + Duration::from_secs(1);
                let remark = match step {
                    Step::Start(_) => None,
                    Step::Check(address, outcome) => check(topology, self.now, &address, *outcome),
                    Step::Report(error) => report(topology, self.now, &error),
                };
                remark.into_iter().collect()
            }
        };
        let description = self.topology.as_ref().map(TopologyMachine::description);
        let description = description.map(Arc::clone).unwrap_or_default();
        Ok((json::snapshot(&description, RoundTrips::LeftOut), remarks))
    }

    fn start(&mut self, options: &Options) -> Vec<String> {
        // The events are not read here, so the topology id does not matter.
        let mut topology = TopologyMachine::new(options);
        // There are no pools and no monitors, so commands to them are dropped, here and below.
        drop(topology.handle(self.now, Input::Open));
        self.topology = Some(topology);
        let warnings = options.multi_threaded_warnings();
        warnings.iter().map(Warning::to_string).collect()
    }
}

/// Applies the result of a check to `topology`; returns a remark if the result is ignored.
fn check(
    topology: &mut TopologyMachine,
    now: Instant,
    address: &ServerAddress,
    outcome: Result<Hello, Error>,
) -> Option<String> {
    let Some(current) = server(topology, address) else {
        return Some(not_in_topology(address));
    };
    let version = match &outcome {
        Ok(hello) => hello.topology_version,
        Err(error) => error.topology_version(),
    };
    let remark = current
        .is_newer_than_reply(version)
        .then(|| "ignored: its topologyVersion is older than the known one".to_owned());
    let input = Input::Checked { server: current.id, outcome, rtt: Some(Rtt::default()) };
    drop(topology.handle(now, input));
    remark
}

/// Applies an application error to `topology`; returns a remark if it changes nothing.
fn report(
    topology: &mut TopologyMachine,
    now: Instant,
    error: &ApplicationError,
) -> Option<String> {
    let Some(current) = server(topology, &error.address) else {
        return Some(not_in_topology(&error.address));
    };
    let generation = topology.generation(current.id, None).unwrap_or_default();
    let outcome = match error.report(generation) {
        Some(report) => topology.handle_error(now, current.id, &report).0,
        None => ErrorOutcome::Irrelevant,
    };
    let reason = match outcome {
        ErrorOutcome::Stale => "its generation or topologyVersion is older than the known one",
        ErrorOutcome::Irrelevant => "it does not affect the state of the server",
        _ => return None,
    };
    Some(format!("ignored: {reason}"))
}

fn server(topology: &TopologyMachine, address: &ServerAddress) -> Option<Arc<ServerDescription>> {
    topology.description().server(address).map(Arc::clone)
}

fn not_in_topology(address: &ServerAddress) -> String {
    format!("ignored: {address} is not part of the topology")
}
