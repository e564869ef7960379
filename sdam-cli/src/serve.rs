//! `serve`: a simulated deployment on loopback, to which any MongoDB client can connect over TCP.
//!
//! The first line on standard output is the connection string. Commands are read from standard
//! input, one per line. Each command is answered by `ok` or `error: ...`; the command `help` lists
//! all of them. A scenario is a file with such commands, one per line, which may begin with a time.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::{Future, pending},
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use clap::Args;
use futures::{FutureExt, Stream, StreamExt, select_biased};
use sdam_core::closest;
use sdam_sim::{
    Action, Blueprint, Served, ServerVersion,
    deployment::Status,
    scenario::{NetFault, ParseStepError, Step, parse_time},
    serve::Listen,
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    cli::{seconds, whole},
    exit::{Exit, Failure},
    files::{self, cannot_read},
    output::Console,
    terminal::wrap,
};

/// The text that the help shows after the options.
const AFTER: &str = "\
The first line of the output is the connection string. Then commands are read from standard input, \
one a line, and each is answered by `ok` or `error: ...`; `help` lists them. The lines of a scenario \
are answered in the same way.

It serves until `quit`, Ctrl-C or SIGTERM, or until the reader of its output leaves. The end of \
standard input does not stop it.

Exit codes: 0 stopped, 3 the command line or the scenario is wrong, 4 another failure.

Examples:
  sdam serve --port 27017
  printf 'kill primary\\nsleep 2\\nstatus\\nquit\\n' | sdam serve --replica-set 5";

/// Serves a simulated deployment on loopback, for any MongoDB client.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    kind: Kind,
    /// The release to simulate, 3.6 to 8.0 [default: 8.0].
    #[arg(long, value_name = "X.Y")]
    version: Option<ServerVersion>,
    /// Number of processes that wait to be added to the replica set.
    #[arg(
        long, value_name = "N", value_parser = whole::<u16>(0..=1000),
        conflicts_with_all = ["sharded", "load_balanced", "standalone"]
    )]
    spares: Option<u16>,
    /// The seed of every random choice.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    seed: Option<u64>,
    /// Steps that change the deployment, one per line, such as `kill primary`; `sleep SECONDS`
    /// waits, and a line may begin with its time: `1.5s kill primary`. `-` is standard input.
    #[arg(long, value_name = "FILE", visible_alias = "script")]
    scenario: Option<PathBuf>,
    /// Print the possible lines of a scenario, and exit.
    #[arg(long)]
    steps: bool,
    /// The first of consecutive ports [default: free ones].
    #[arg(long, value_name = "N", value_parser = whole::<u16>(0..=65_535))]
    port: Option<u16>,
}

/// The number of members if no kind of deployment is given.
const MEMBERS: u16 = 3;

/// The kind of deployment; a replica set of three members if none is given.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
struct Kind {
    /// A replica set of N members (the default, with 3).
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    replica_set: Option<u16>,
    /// N mongoses.
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    sharded: Option<u16>,
    /// N mongoses behind a load balancer.
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1000))]
    load_balanced: Option<u16>,
    /// One mongod without a replica set.
    #[arg(long)]
    standalone: bool,
}

impl Arguments {
    /// Returns the deployment, and where to serve it.
    fn deployment(&self) -> (Blueprint, Listen) {
        let blueprint = match self.kind {
            Kind { sharded: Some(mongoses), .. } => Blueprint::sharded(mongoses),
            Kind { load_balanced: Some(mongoses), .. } => Blueprint::load_balanced(mongoses),
            Kind { standalone: true, .. } => Blueprint::standalone(),
            Kind { replica_set, .. } => Blueprint::replica_set(replica_set.unwrap_or(MEMBERS)),
        };
        let spares = self.spares.unwrap_or_default();
        let blueprint = blueprint.version(self.version.unwrap_or_default()).spares(spares);
        let listen = self.seed.map_or_else(Listen::new, |seed| Listen::new().seed(seed));
        (blueprint, listen)
    }
}

/// Serves the deployment that `arguments` describe until `stop` is ready or a command ends the
/// program.
///
/// First executes the steps of the scenario. Then opens and executes the `commands`; they are not
/// opened earlier, because the scenario may also come from standard input.
///
/// Must be called within a tokio runtime with timers.
///
/// # Errors
///
/// If writing to the console or opening the commands fails. Other errors are printed and determine
/// the exit code.
pub async fn run<O: Write, R: Write, C: Stream<Item = String>>(
    arguments: &Arguments,
    console: Console<O, R>,
    commands: impl FnOnce() -> io::Result<C>,
    stop: impl Future<Output = ()>,
) -> io::Result<Exit> {
    let Console { mut output, mut remarks, .. } = console;
    if arguments.steps {
        writeln!(output, "{}", Command::help())?;
        return output.flush().map(|()| Exit::SUCCESS);
    }
    let script = arguments.scenario.as_deref().map(Script::open).transpose();
    let started = script.and_then(|script| {
        let (blueprint, listen) = arguments.deployment();
        let server = match arguments.port {
            None => listen.serve(blueprint).map_err(Failure::other)?,
            Some(port) => listen.port(port).serve(blueprint).map_err(|error| {
                Failure::other(format!("--port {port}: {error}; choose another port"))
            })?,
        };
        Ok((script, server))
    });
    let (script, server) = match started {
        Ok(started) => started,
        Err(failure) => return failure.report(&mut remarks),
    };
    let mut stop = pin!(stop.fuse());
    // Poll `stop` before printing: it handles signals only after its first poll, and a signal may
    // arrive as soon as the first line is printed.
    if stop.as_mut().now_or_never().is_some() {
        return Ok(Exit::SUCCESS);
    }
    let mut session = Session { server, output };
    let uri = session.server.uri().to_owned();
    session.print(&uri)?;
    announce(&mut remarks)?;
    let work = async {
        if let Some(script) = script
            && session.play(&script).await?.is_break()
        {
            return Ok(());
        }
        let mut commands = pin!(commands()?);
        while let Some(line) = commands.next().await {
            if session.line(&line).await?.is_break() {
                return Ok(());
            }
        }
        pending().await
    };
    let end: io::Result<()> = select_biased! {
        () = stop => Ok(()),
        end = pin!(work.fuse()) => end,
    };
    end.map(|()| Exit::SUCCESS)
}

/// Explains how to control the deployment.
fn announce(remarks: &mut impl Write) -> io::Result<()> {
    let verbs: Vec<_> = Command::verbs().collect();
    let words = format!(
        "note: commands on standard input: {}. `help` explains them; `quit` or Ctrl-C stops.",
        verbs.join(", ")
    );
    for line in wrap(&words, 0) {
        writeln!(remarks, "{line}")?;
    }
    remarks.flush()
}

/// A deployment, and the output to which its commands print.
struct Session<O> {
    server: Served,
    output: O,
}

/// Tells whether the program continues after a command. `Break` ends the program.
type Next = ControlFlow<()>;

impl<O: Write> Session<O> {
    /// Executes each line of `script` at its scheduled time.
    async fn play(&mut self, script: &Script) -> io::Result<Next> {
        let start = Instant::now();
        for line in &script.lines {
            if let Some(due) = start.checked_add(line.at) {
                sleep_until(due).await;
            }
            let (next, answer) = match self.execute(&line.command).await? {
                Ok(next) => (next, "ok".to_owned()),
                Err(error) => {
                    let place = script.place(line.number);
                    (Next::Continue(()), format!("error: {place}: {error}"))
                }
            };
            if line.is_timed {
                self.print(&format!("{}: {answer}", line.command))?;
            } else {
                self.print(&answer)?;
            }
            if next.is_break() {
                return Ok(next);
            }
        }
        Ok(Next::Continue(()))
    }

    /// Executes a line of standard input.
    async fn line(&mut self, line: &str) -> io::Result<Next> {
        let done = match Command::parse(line) {
            Ok(None) => return Ok(Next::Continue(())),
            Ok(Some(command)) => self.execute(&command).await?,
            Err(error) => Err(error),
        };
        match done {
            Ok(next) => self.print("ok").map(|()| next),
            Err(error) => self.print(&format!("error: {error}")).map(Next::Continue),
        }
    }

    /// Executes a command and prints its output, but not yet the answer `ok` or `error: ...`. An
    /// inner error is the message of the `error: ...` answer.
    async fn execute(&mut self, command: &Command) -> io::Result<Result<Next, String>> {
        let done = match command {
            Command::Step(Step::Act(action)) => self.server.apply(action),
            Command::Step(_) => {
                let error = "a served deployment has no simulated network: remove the `net` steps, \
                             or write a test with `sdam::sim`";
                return Ok(Err(error.to_owned()));
            }
            Command::Sleep(time) => {
                sleep(*time).await;
                Ok(())
            }
            Command::Status => {
                let status = self.server.status();
                for line in status.iter().flat_map(describe) {
                    self.print(&line)?;
                }
                status.map(drop)
            }
            Command::Help => return self.print(&Command::help()).map(|()| Ok(Next::Continue(()))),
            Command::Quit => return Ok(Ok(Next::Break(()))),
        };
        Ok(done.map(Next::Continue).map_err(|error| error.to_string()))
    }

    /// Prints `text` and flushes the output, so that the text is not delayed by buffering.
    fn print(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.output, "{text}")?;
        self.output.flush()
    }
}

/// Describes each member on one line.
fn describe(status: &Status) -> impl Iterator<Item = String> {
    status.members.iter().map(|member| {
        let role = match (member.running, member.role) {
            (false, _) => "down".to_owned(),
            (true, None) => "up".to_owned(),
            (true, Some(role)) => format!("{role:?}").to_lowercase(),
        };
        let mute = if member.running && !member.answers { " (does not answer)" } else { "" };
        let version = member.topology_version;
        format!(
            "{} {} {role}{mute} term {} counter {}",
            member.id, member.address, member.term, version.counter
        )
    })
}

/// The steps in a file, with their times.
#[derive(Clone, Debug, PartialEq)]
struct Script {
    /// The name of the file.
    name: String,
    /// The lines, in the order of their times.
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    /// The number of the line, counted from 1.
    number: usize,
    /// The time at which the command is due, since the start. If the line does not begin with a
    /// time, this is the time at which the previous line ends.
    at: Duration,
    /// True if the line begins with a time.
    is_timed: bool,
    command: Command,
}

/// The command on a line.
#[derive(Clone, Debug, PartialEq)]
enum Command {
    /// Changes the deployment.
    Step(Step),
    /// Waits before the next line.
    Sleep(Duration),
    Status,
    Help,
    Quit,
}

impl Script {
    /// Reads the file `path`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a line is invalid. The message names the file and each
    /// invalid line.
    fn open(path: &Path) -> Result<Self, Failure> {
        let name = files::name(path);
        let text = files::read_text(path);
        let text = text
            .map_err(|error| Failure::config(cannot_read(format!("--scenario {name}"), &error)))?;
        Self::parse(name, &text)
    }

    /// Parses `text`, the content of the file `name`.
    ///
    /// # Errors
    ///
    /// If a line is invalid; the message names each one.
    fn parse(name: String, text: &str) -> Result<Self, Failure> {
        let mut script = Self { name, lines: Vec::new() };
        let mut errors = Vec::new();
        let mut now = Duration::ZERO;
        for (number, text) in (1..).zip(text.lines()) {
            match parse_line(text) {
                Ok(None) => {}
                Ok(Some((at, command))) => {
                    now = at.unwrap_or(now);
                    let line = Line { number, at: now, is_timed: at.is_some(), command };
                    if let Command::Sleep(time) = line.command {
                        now = now.saturating_add(time);
                    }
                    script.lines.push(line);
                }
                Err(error) => errors.push(format!("{}: {error}", script.place(number))),
            }
        }
        script.lines.sort_by_key(|line| line.at);
        if errors.is_empty() { Ok(script) } else { Err(Failure::config(errors.join("\nerror: "))) }
    }

    /// Formats the file and the line, for use in error messages.
    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.name)
    }
}

impl Command {
    /// The syntax and meaning of the commands that do not change the deployment.
    const SYNTAX: &str = "\
status                         the state of every process
sleep SECONDS                  wait
help                           this text
quit                           stop";

    /// Returns the syntax and meaning of all commands.
    fn help() -> String {
        [Action::SYNTAX, Self::SYNTAX].join("\n")
    }

    /// Returns the first words of all commands.
    fn verbs() -> impl Iterator<Item = &'static str> {
        let lines = Action::SYNTAX.lines().chain(Self::SYNTAX.lines());
        let lines = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
        lines.filter_map(|line| line.split_whitespace().next())
    }

    /// Parses a line that does not begin with a time. Returns `None` if the line is empty.
    ///
    /// # Errors
    ///
    /// If the line is invalid. The error describes the problem and the remedy.
    fn parse(line: &str) -> Result<Option<Self>, String> {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Ok(Some(match verb {
            "" => return Ok(None),
            "status" => Self::Status,
            "help" => Self::Help,
            "quit" => Self::Quit,
            "sleep" => Self::Sleep(
                seconds(rest.trim())
                    .map_err(|error| format!("`{}` is no time: {error}", rest.trim()))?,
            ),
            _ => Self::Step(line.parse().map_err(|error| explain(&error))?),
        }))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => step.fmt(f),
            Self::Sleep(time) => write!(f, "sleep {}", time.as_secs_f64()),
            Self::Status => f.write_str("status"),
            Self::Help => f.write_str("help"),
            Self::Quit => f.write_str("quit"),
        }
    }
}

/// Parses a line of a script, which may begin with a time. Returns `None` if the line is empty.
fn parse_line(line: &str) -> Result<Option<(Option<Duration>, Command)>, String> {
    let line = line.trim();
    if !line.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Ok(Command::parse(line)?.map(|command| (None, command)));
    }
    let (at, command) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let at = parse_time(at).map_err(|error| explain(&error))?;
    match Command::parse(command)? {
        Some(command) => Ok(Some((Some(at), command))),
        None => Err("the step is missing; write a line as `1.5s kill primary`".to_owned()),
    }
}

/// Explains the error in a step, and suggests a similar word or a remedy.
fn explain(error: &ParseStepError) -> String {
    let reason = error.reason();
    let wrong = reason.split('`').nth(1).unwrap_or_default();
    let wrong = wrong.split('=').next().unwrap_or_default();
    match closest(wrong, words()) {
        Some(word) => format!("{reason}: did you mean `{word}`?"),
        None => format!("{reason}; {}", error.remedy()),
    }
}

/// Returns the words that occur in steps: verbs, settings, and names of members.
fn words() -> impl Iterator<Item = &'static str> {
    let lines = Action::SYNTAX.lines().chain(NetFault::SYNTAX.lines());
    let lines = lines.flat_map(|line| {
        let (usage, meaning) = line.split_once("  ").unwrap_or((line, ""));
        let settings = meaning.split_whitespace();
        let settings = settings.filter_map(|word| word.split_once('=').map(|(name, _)| name));
        let usage = usage.split(|letter: char| !(letter.is_ascii_lowercase() || letter == '_'));
        usage.chain(settings)
    });
    let lines = lines.filter(|word| !word.is_empty());
    lines.chain(Command::verbs()).chain(["primary", "secondary", "true", "false"])
}
