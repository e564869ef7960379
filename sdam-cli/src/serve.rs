//! `serve`: a simulated deployment on loopback TCP, for any MongoDB client to connect to.
//!
//! The first line on standard output is the connection string. Commands are read from standard
//! input, one per line, and each is answered by `ok` or `error: ...`; `help` lists them. Without
//! standard input the deployment is served until it is interrupted.

use std::{
    error::Error,
    fs,
    io::{self, BufRead, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use sdam_sim::{
    Action,
    deployment::Status,
    scenario::{Scenario, Step},
    serve::{Builder, Server},
    version::ServerVersion,
};

use crate::{exit::Exit, failure::Failure};

/// What the help ends with.
const AFTER: &str = "\
The first line of the output is the connection string. Commands are read from standard input, one a \
line, and each is answered by `ok` or `error: ...`; `help` lists them.

Exit codes: 0 stopped, 3 the command line or the script is wrong, 4 another failure.

Example: echo 'kill primary' | sdam serve --replica-set 5";

/// Serves a simulated deployment on loopback, for any MongoDB client to connect to, until `quit` or
/// Ctrl-C.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    deployment: Deployment,
    /// The release to simulate, 3.6 to 8.0 [default: 8.0].
    #[arg(long, value_name = "X.Y")]
    version: Option<ServerVersion>,
    /// The first of consecutive ports [default: free ones].
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The number of processes that wait to be added to the replica set.
    #[arg(long, value_name = "N")]
    spares: Option<u16>,
    /// The seed of every random choice.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Commands to run first, one a line; `sleep SECONDS` waits. Or a scenario, whose lines begin
    /// with a time: `1.5s kill primary`.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

/// The kind of deployment; a replica set of three members if none is given.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
struct Deployment {
    /// A replica set of N members (the default, with 3).
    #[arg(long, value_name = "N", value_parser = count())]
    replica_set: Option<u16>,
    /// N mongoses.
    #[arg(long, value_name = "N", value_parser = count())]
    sharded: Option<u16>,
    /// N mongoses behind a load balancer.
    #[arg(long, value_name = "N", value_parser = count())]
    load_balanced: Option<u16>,
    /// One mongod without a replica set.
    #[arg(long)]
    standalone: bool,
}

fn count() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..)
}

impl Arguments {
    fn builder(&self) -> Builder {
        let kind = &self.deployment;
        let mut builder = match (kind.sharded, kind.load_balanced, kind.standalone) {
            (Some(count), ..) => Builder::sharded(count),
            (_, Some(count), _) => Builder::load_balanced(count),
            (.., true) => Builder::standalone(),
            _ => Builder::replica_set(kind.replica_set.unwrap_or(3)),
        };
        if let Some(version) = self.version {
            builder = builder.version(version);
        }
        if let Some(port) = self.port {
            builder = builder.port(port);
        }
        if let Some(spares) = self.spares {
            builder = builder.spares(spares);
        }
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        builder
    }
}

const COMMANDS: &str = "\
status                         the state of every process
sleep SECONDS                  wait
help                           this text
quit                           stop";

/// Serves the deployment of `arguments`, with commands from standard input.
///
/// # Errors
///
/// Only those of the standard streams; other errors are printed and set the exit code.
pub fn run(arguments: &Arguments) -> io::Result<Exit> {
    let started = Script::read(arguments).and_then(|script| {
        let server = arguments.builder().start().map_err(Failure::other)?;
        Ok((script, server))
    });
    let (script, server) = match started {
        Ok(started) => started,
        Err(failure) => return failure.report(&mut io::stderr()),
    };
    print(server.uri())?;
    if !script.run(&server)? {
        return Ok(Exit::SUCCESS);
    }
    for line in io::stdin().lock().lines() {
        if !run_command(&server, &line?)? {
            return Ok(Exit::SUCCESS);
        }
    }
    loop {
        // Without commands only an interrupt ends the deployment.
        thread::park();
    }
}

/// What runs before the commands from standard input.
enum Script {
    Commands(String),
    Scenario(Scenario),
}

impl Script {
    fn read(arguments: &Arguments) -> Result<Self, Failure> {
        let Some(path) = &arguments.script else {
            return Ok(Self::Commands(String::new()));
        };
        let failed =
            |error: &dyn Error| Failure::config(format!("--script {}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        if begins_with_a_time(&text) {
            let scenario = text.parse().map_err(|error| failed(&error))?;
            return Ok(Self::Scenario(scenario));
        }
        Ok(Self::Commands(text))
    }

    /// Runs it; returns false if it ends the program.
    fn run(self, server: &Server) -> io::Result<bool> {
        match self {
            Self::Scenario(scenario) => play(server, scenario)?,
            Self::Commands(text) => {
                for line in text.lines() {
                    if !run_command(server, line)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Returns whether a script is a scenario.
fn begins_with_a_time(script: &str) -> bool {
    let mut lines = script.lines().map(without_comment);
    let first = lines.find(|line| !line.is_empty()).unwrap_or_default();
    first.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Executes the steps of `scenario` at their times, and prints the answer to each.
fn play(server: &Server, scenario: Scenario) -> io::Result<()> {
    let start = Instant::now();
    let mut steps = scenario.steps;
    steps.sort_by_key(|(at, _)| *at);
    for (at, step) in steps {
        thread::sleep(at.saturating_sub(start.elapsed()));
        let done = match &step {
            Step::Act(action) => server
                .apply(action.clone())
                .map_err(|error| error.to_string()),
            _ => Err(
                "a served deployment has no simulated network: remove the `net` steps".to_owned(),
            ),
        };
        match done {
            Ok(()) => print(&format!("{step}: ok"))?,
            Err(error) => print(&format!("{step}: error: {error}"))?,
        }
    }
    Ok(())
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// Executes `line` and prints the answer; returns false after the last command.
fn run_command(server: &Server, line: &str) -> io::Result<bool> {
    let line = without_comment(line);
    match line.split_once(' ').unwrap_or((line, "")) {
        ("", _) => return Ok(true),
        ("quit", _) => {
            print("ok")?;
            return Ok(false);
        }
        ("help", _) => print(&format!("{}\n{COMMANDS}\nok", Action::SYNTAX))?,
        ("status", _) => match server.status() {
            Ok(status) => print(&format!("{}ok", describe(&status)))?,
            Err(error) => print(&format!("error: {error}"))?,
        },
        ("sleep", seconds) => match seconds.parse().map(Duration::try_from_secs_f64) {
            Ok(Ok(duration)) => {
                thread::sleep(duration);
                print("ok")?;
            }
            _ => print(&format!("error: `{seconds}` is not a number of seconds"))?,
        },
        _ => match apply(server, line) {
            Ok(()) => print("ok")?,
            Err(error) => print(&format!("error: {error}"))?,
        },
    }
    Ok(true)
}

fn apply(server: &Server, line: &str) -> Result<(), Box<dyn Error>> {
    server.apply(line.parse()?)?;
    Ok(())
}

/// Describes the members, one line for each.
fn describe(status: &Status) -> String {
    let lines = status.members.iter().map(|member| {
        let role = match (member.running, member.role) {
            (false, _) => "down".to_owned(),
            (true, None) => "up".to_owned(),
            (true, Some(role)) => format!("{role:?}").to_lowercase(),
        };
        let mute = if member.running && !member.answers {
            " (does not answer)"
        } else {
            ""
        };
        let version = member.topology_version;
        format!(
            "{} {} {role}{mute} term {} counter {}\n",
            member.id, member.address, member.term, version.counter
        )
    });
    lines.collect()
}

/// Prints and flushes, also into a pipe.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
