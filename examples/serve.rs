//! Serves a simulated deployment on loopback TCP, for any MongoDB client to connect to.
//!
//! The first line on standard output is the connection string. Commands are read from standard
//! input, one per line, and each is answered by `ok` or `error: ...`; `help` lists them. Without
//! standard input the deployment is served until it is interrupted.

use std::{
    error::Error,
    fs,
    io::{self, BufRead, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use sdam_sim::{
    Action,
    deployment::Status,
    scenario::{Scenario, Step},
    serve::{Builder, Server},
    version::ServerVersion,
};

const USAGE: &str = "\
usage: cargo run --example serve -- [DEPLOYMENT] [OPTIONS]

deployments:
  --replica-set N     a replica set of N members (the default, with 3)
  --sharded N         N mongoses
  --load-balanced N   N mongoses behind a load balancer
  --standalone        one mongod without a replica set

options:
  --version X.Y       the release to simulate, 3.6 to 8.0 (default 8.0)
  --port N            the first of consecutive ports (default: free ones)
  --spares N          processes that wait to be added to the replica set
  --seed N            the seed of every random choice
  --script FILE       commands to run first, one a line; `sleep SECONDS` waits. Or a scenario,
                      whose lines begin with a time: `1.5s kill primary`
";

const COMMANDS: &str = "\
status                         the state of every process
sleep SECONDS                  wait
help                           this text
quit                           stop";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        print!("{USAGE}\ncommands:\n{}\n{COMMANDS}\n", Action::SYNTAX);
        return Ok(());
    };
    let script = options.script.map(fs::read_to_string).transpose()?;
    let server = options.builder.start()?;
    print(server.uri())?;
    let script = script.unwrap_or_default();
    if begins_with_a_time(&script) {
        play(&server, script.parse()?)?;
    } else {
        for line in script.lines() {
            if !run_command(&server, line)? {
                return Ok(());
            }
        }
    }
    for line in io::stdin().lock().lines() {
        if !run_command(&server, &line?)? {
            return Ok(());
        }
    }
    loop {
        // Without commands only an interrupt ends the deployment.
        thread::park();
    }
}

/// The parsed command line.
struct Options {
    builder: Builder,
    script: Option<String>,
}

impl Options {
    /// Parses the command line; `None` if it asks for help.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, Box<dyn Error>> {
        let mut deployment = None;
        let mut settings: Vec<Box<dyn FnOnce(Builder) -> Builder>> = Vec::new();
        let mut script = None;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match &*arg {
                "--replica-set" => deployment = Some(Builder::replica_set(count(&value()?)?)),
                "--sharded" => deployment = Some(Builder::sharded(count(&value()?)?)),
                "--load-balanced" => deployment = Some(Builder::load_balanced(count(&value()?)?)),
                "--standalone" => deployment = Some(Builder::standalone()),
                "--version" => {
                    let version: ServerVersion = value()?.parse()?;
                    settings.push(Box::new(move |builder| builder.version(version)));
                }
                "--port" => {
                    let port = value()?.parse()?;
                    settings.push(Box::new(move |builder| builder.port(port)));
                }
                "--spares" => {
                    let spares = value()?.parse()?;
                    settings.push(Box::new(move |builder| builder.spares(spares)));
                }
                "--seed" => {
                    let seed = value()?.parse()?;
                    settings.push(Box::new(move |builder| builder.seed(seed)));
                }
                "--script" => script = Some(value()?),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unexpected argument: {arg}\n\n{USAGE}").into()),
            }
        }
        let deployment = deployment.unwrap_or_else(|| Builder::replica_set(3));
        let builder = settings
            .into_iter()
            .fold(deployment, |builder, set| set(builder));
        Ok(Some(Self { builder, script }))
    }
}

fn count(text: &str) -> Result<u16, Box<dyn Error>> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(format!("`{text}` is not a number of servers").into()),
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
