//! Scripts that change a simulated deployment, with one step per line.

#[cfg(test)]
mod tests;

use std::{fmt, path::Path, time::Duration};

use sdam_core::closest;
use sdam_sim::{
    Action,
    scenario::{NetFault, ParseStepError, Step, parse_time},
};

use crate::{failure::Failure, file_error::cannot_read, input, values::seconds};

/// The steps in a file, with their times.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    /// The name of the file.
    name: String,
    /// The lines, in the order of their times.
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// The number of the line, counted from 1.
    pub(super) number: usize,
    /// The time at which the command is due, since the start. If the line does not begin with a
    /// time, this is the time at which the previous line ends.
    pub(super) at: Duration,
    /// True if the line begins with a time.
    pub(super) is_timed: bool,
    pub(super) command: Command,
}

/// The command on a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
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
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let name = input::name(path);
        let text = input::read_text(path);
        let text = text
            .map_err(|error| Failure::config(cannot_read(format!("--scenario {name}"), &error)))?;
        Self::parse(name, &text)
    }

    /// Parses `text`, the content of the file `name`.
    ///
    /// # Errors
    ///
    /// The errors are the same as those of [`open`](Self::open).
    pub(super) fn parse(name: String, text: &str) -> Result<Self, Failure> {
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
    pub(super) fn place(&self, line: usize) -> String {
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
    pub(super) fn help() -> String {
        [Action::SYNTAX, Self::SYNTAX].join("\n")
    }

    /// Returns the first words of all commands.
    pub(super) fn verbs() -> impl Iterator<Item = &'static str> {
        let lines = Action::SYNTAX.lines().chain(Self::SYNTAX.lines());
        let lines = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
        lines.filter_map(|line| line.split_whitespace().next())
    }

    /// Parses a line that does not begin with a time. Returns `None` if the line is empty.
    ///
    /// # Errors
    ///
    /// If the line is invalid. The error describes the problem and the remedy.
    pub(super) fn parse(line: &str) -> Result<Option<Self>, String> {
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
