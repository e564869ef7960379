//! Parsing of scenarios from text.

use std::{
    fmt,
    str::{FromStr, SplitWhitespace},
    time::Duration,
};

use super::{NetFault, Scenario, Step};
use crate::{
    Action,
    action::{ParseActionError, Target, parse_seconds, value},
    runtime::Latency,
};

/// The error for a text that is not a [`Scenario`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseScenarioError {
    line: usize,
    error: ParseStepError,
}

impl ParseScenarioError {
    /// Returns the number of the line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for ParseScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.error)
    }
}

impl std::error::Error for ParseScenarioError {}

/// The error for a text that is not a [`Step`], or not a time followed by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseStepError {
    what: String,
    /// The syntax to show in the message.
    usage: Usage,
}

/// The part of the syntax that helps with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Line,
    /// The line of an action, by its first word.
    Act(Option<&'static str>),
    Net(Option<&'static str>),
}

impl fmt::Display for ParseStepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.usage {
            Usage::Line => {
                f.write_str("; write a line as `AT VERB ...`, such as `1.5s kill primary`")
            }
            Usage::Act(Some(line)) | Usage::Net(Some(line)) => write!(f, "; write it as `{line}`"),
            Usage::Act(None) => {
                f.write_str("; the verbs are net")?;
                words(Action::SYNTAX).try_for_each(|word| write!(f, ", {word}"))
            }
            Usage::Net(None) => {
                f.write_str("; the verbs are")?;
                let words = NetFault::SYNTAX
                    .lines()
                    .filter_map(|line| line.split_whitespace().nth(1));
                words.enumerate().try_for_each(|(index, word)| {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} {word}")
                })
            }
        }
    }
}

impl std::error::Error for ParseStepError {}

impl NetFault {
    /// The syntax and meaning of every fault of the network, one line each.
    pub const SYNTAX: &str = "\
net refuse MEMBER [off]             new connections to the member are refused
net blackhole MEMBER [off]          bytes to and from the member are dropped silently
net reset MEMBER                    every connection to the member is reset
net reset_after MEMBER BYTES|off    new connections are reset after this many bytes from the member
net dns SECONDS|fail                host name look-ups take this long, or fail
net latency MIN SPREAD [chunked]    one way takes MIN to MIN + SPREAD seconds; in pieces
net heal                            all faults of the network end";
}

impl FromStr for Scenario {
    type Err = ParseScenarioError;

    fn from_str(text: &str) -> Result<Self, ParseScenarioError> {
        let lines = text.lines().enumerate();
        lines
            .map(|(index, line)| (index + 1, line.split('#').next().unwrap_or_default().trim()))
            .filter(|(_, line)| !line.is_empty())
            .map(|(line, text)| {
                timed_step(text).map_err(|error| ParseScenarioError { line, error })
            })
            .collect()
    }
}

impl FromStr for Step {
    type Err = ParseStepError;

    fn from_str(text: &str) -> Result<Self, ParseStepError> {
        let verb = text.split_whitespace().next().unwrap_or_default();
        if verb == "net" {
            return text.parse().map(Self::Net);
        }
        text.parse()
            .map(Self::Act)
            .map_err(|error: ParseActionError| ParseStepError {
                what: error.to_string(),
                usage: Usage::Act(usage(Action::SYNTAX, |line| starts_with(line, &[verb]))),
            })
    }
}

impl FromStr for NetFault {
    type Err = ParseStepError;

    fn from_str(text: &str) -> Result<Self, ParseStepError> {
        let mut words = text.split_whitespace().peekable();
        // The prefix `net` is optional: only scenarios need it to distinguish faults from actions.
        words.next_if_eq(&"net");
        let verb = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        read_fault(verb, &words).map_err(|what| ParseStepError {
            what,
            usage: Usage::Net(usage(Self::SYNTAX, |line| {
                starts_with(line, &["net", verb])
            })),
        })
    }
}

/// Parses a time and a step.
fn timed_step(line: &str) -> Result<(Duration, Step), ParseStepError> {
    let (at, step) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let at = time(at).ok_or_else(|| ParseStepError {
        what: format!("`{at}` is not a time"),
        usage: Usage::Line,
    })?;
    if step.is_empty() {
        return Err(ParseStepError {
            what: "the step is missing".into(),
            usage: Usage::Line,
        });
    }
    Ok((at, step.trim().parse()?))
}

fn time(text: &str) -> Option<Duration> {
    if let Some(millis) = text.strip_suffix("ms") {
        return millis.parse().ok().map(Duration::from_millis);
    }
    parse_seconds(text.strip_suffix('s')?).ok()
}

fn read_fault(verb: &str, words: &[&str]) -> Result<NetFault, String> {
    let target = |word: &str| word.parse::<Target>().map_err(|error| error.to_string());
    let seconds = |word: &str| parse_seconds(word).map_err(|error| error.to_string());
    Ok(match (verb, words) {
        ("refuse", [member]) => NetFault::Refuse(target(member)?, true),
        ("refuse", [member, "off"]) => NetFault::Refuse(target(member)?, false),
        ("blackhole", [member]) => NetFault::Blackhole(target(member)?, true),
        ("blackhole", [member, "off"]) => NetFault::Blackhole(target(member)?, false),
        ("reset", [member]) => NetFault::Reset(target(member)?),
        ("reset_after", [member, "off"]) => NetFault::ResetAfter(target(member)?, None),
        ("reset_after", [member, bytes]) => {
            let bytes = value("BYTES", bytes).map_err(|error| error.to_string())?;
            NetFault::ResetAfter(target(member)?, Some(bytes))
        }
        ("dns", ["fail"]) => NetFault::Dns(None),
        ("dns", [delay]) => NetFault::Dns(Some(seconds(delay)?)),
        ("latency", [min, spread, rest @ ..]) if matches!(rest, [] | ["chunked"]) => {
            NetFault::Latency(Latency {
                min: seconds(min)?,
                spread: seconds(spread)?,
                chunked: !rest.is_empty(),
            })
        }
        ("heal", []) => NetFault::Heal,
        ("refuse" | "blackhole" | "reset" | "reset_after" | "dns" | "latency" | "heal", words) => {
            return Err(match words {
                [] => format!("`net {verb}` lacks its arguments"),
                words => format!("`net {verb}` does not take `{}`", words.join(" ")),
            });
        }
        _ => return Err(format!("`{verb}` is not a fault of the network")),
    })
}

/// Returns the usage of a verb from the matching line of `syntax`.
fn usage(syntax: &'static str, is_it: impl Fn(&str) -> bool) -> Option<&'static str> {
    let line = syntax.lines().find(|line| is_it(line))?;
    Some(line.split_once("  ").map_or(line, |(usage, _)| usage))
}

fn starts_with(line: &str, words: &[&str]) -> bool {
    let mut line: SplitWhitespace<'_> = line.split_whitespace();
    words.iter().all(|word| line.next() == Some(*word))
}

/// Returns the first words of the lines of a syntax that begin with a verb.
fn words(syntax: &'static str) -> impl Iterator<Item = &'static str> {
    syntax
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
}
