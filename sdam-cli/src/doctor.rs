//! Checks a deployment step by step, from the connection string to server selection, and gives a
//! verdict and a remedy for each step.

mod finding;
mod findings;
mod observation;
mod observe;
mod report;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    io::{self, Write},
    time::Duration,
};

use clap::{Args, ValueEnum};
use sdam::Runtime;
use sdam_sim::Blueprint;

use self::{finding::Check, observation::Observation};
use crate::{
    cli::some_seconds,
    exit::Exit,
    output::Console,
    target::{Target, redact},
    terminal::{Palette, Tone},
};

/// The text that the help shows after the options.
const AFTER: &str = "\
Every host is checked at the same time, and a failed check ends those of its host only. Nothing is \
written, except with --write-to: the servers receive hello, and one of them a login and ping if the \
connection string has credentials, or else listDatabases, which only a server without \
authentication answers.

A step of a connection may take as long as in a client: connectTimeoutMS, which is 10 s unless the \
connection string says otherwise. The check-up ends within four times --timeout (without it, within \
36 s, or four times a longer connectTimeoutMS), or twice as much with --write-to, whatever the servers do.

Exit codes, the same for text and JSON: 0 nothing worse than info, 1 the worst finding is a warning, \
2 a failure, 3 the command line or the connection string is wrong, 4 a check could not be made. \
--fail-on makes 1, or 1 and 2, a 0; suppressed findings do not count.

Example:
  sdam doctor 'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// Checks a deployment from here, step by step, and says what to do about each problem.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Also show passed checks.
    #[arg(long, short)]
    pub verbose: bool,
    /// Accept findings of this check, at this host or everywhere; may be repeated. JSON keeps them,
    /// with "suppressed": true.
    #[arg(long, value_name = "ID[@HOST]", value_parser = Suppression::parse)]
    pub suppress: Vec<Suppression>,
    /// Minimum severity for a non-zero exit.
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t)]
    pub fail_on: FailOn,
    /// Also insert a document into this collection, wait for a majority, and delete it again.
    #[arg(long = "write-to", value_name = "DB.COLLECTION", value_parser = Collection::parse)]
    pub write: Option<Collection>,
    /// Time limit of one step of a connection [default: connectTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    pub timeout: Option<Duration>,
}

/// The collection for the write test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    database: String,
    name: String,
}

impl Collection {
    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('.').filter(|(database, name)| {
            let is_plain = |letter: char| letter > ' ' && !"/\\\"$".contains(letter);
            !database.is_empty() && !name.is_empty() && text.chars().all(is_plain)
        });
        let (database, name) =
            parts.ok_or("it needs a database and a collection, for example test.canary")?;
        if matches!(database, "admin" | "config" | "local") {
            return Err(format!("{database} is the servers' own; name another database"));
        }
        Ok(Self { database: database.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.name)
    }
}

/// The minimum severity for a non-zero exit. It does not affect the exit codes for an invalid
/// connection string and for a check that could not be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum FailOn {
    /// A warning or a failure.
    #[default]
    Warning,
    /// A failure.
    Failure,
    /// No finding.
    Never,
}

/// Findings to ignore: all findings of one check, either at one host or at every host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    check: Check,
    host: Option<String>,
}

impl Suppression {
    fn parse(text: &str) -> Result<Self, String> {
        let (id, host) = match text.split_once('@') {
            Some((_, "")) => return Err("behind @ there is no host".to_owned()),
            Some((id, host)) => (id, Some(host.to_ascii_lowercase())),
            None => (text, None),
        };
        let check = Check::of(id)?;
        Ok(Self { check, host })
    }

    /// Returns whether findings of `check` about `subject` are suppressed. A suppression for a host
    /// without a port applies to every port.
    fn covers(&self, check: Check, subject: Option<&str>) -> bool {
        let is_host = |host: &String| {
            let subject = subject.unwrap_or_default().to_ascii_lowercase();
            let rest = subject.strip_prefix(host);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        self.check == check && self.host.as_ref().is_none_or(is_host)
    }
}

/// Checks the deployment that `arguments` name, and prints the findings.
///
/// Must be called within a tokio runtime with I/O and timers.
///
/// # Errors
///
/// If writing to the console fails. Other errors are printed there and set the exit code.
pub async fn run<O: Write, R: Write>(
    arguments: &Arguments,
    mut console: Console<O, R>,
) -> io::Result<Exit> {
    let prepared = arguments.target.deployment(|| Blueprint::replica_set(3).serve());
    let prepared = prepared.and_then(|(uri, set)| Ok((uri, arguments.target.runtime()?, set)));
    match prepared {
        Ok((uri, runtime, simulated)) => {
            if simulated.is_some() && !arguments.json {
                let words = Target::simulation(&uri);
                let words = console.palette.paint(Tone::Faint, words);
                writeln!(console.output, "{words}")?;
            }
            examine(arguments, &uri, &runtime, &mut console.output, console.palette).await
        }
        Err(failure) => failure.report(&mut console.remarks),
    }
}

/// Checks the deployment at `uri` using `runtime`, and prints the findings.
async fn examine(
    arguments: &Arguments,
    uri: &str,
    runtime: &Runtime,
    output: &mut impl Write,
    palette: Palette,
) -> io::Result<Exit> {
    let seen = observe::observe(arguments, uri, runtime).await;
    let (text, exit) = conclude(arguments, uri, &seen, palette);
    write!(output, "{text}")?;
    Ok(exit)
}

/// Returns the text to print for the observation, and the exit code.
fn conclude(
    arguments: &Arguments,
    uri: &str,
    seen: &Observation,
    palette: Palette,
) -> (String, Exit) {
    let mut findings = findings::of(seen);
    finding::suppress(&mut findings, &arguments.suppress);
    let text = if arguments.json {
        report::json(&redact(uri), arguments.target.demo, &findings)
    } else {
        report::text(palette, &findings, seen, arguments.verbose)
    };
    (text, finding::exit(&findings, arguments.fail_on))
}
