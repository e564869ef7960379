//! Parses scenarios from text.

use std::{str::FromStr, time::Duration};

use super::{Scenario, Step, error::ParseStepError};
use crate::{
    Action,
    action::{ParseActionError, parse_seconds},
};

/// The error returned when a [`Scenario`] cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct ParseScenarioError {
    line: usize,
    error: ParseStepError,
}

impl ParseScenarioError {
    /// Returns the line number, starting at 1.
    pub fn line(&self) -> usize {
        self.line
    }
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
        text.parse().map(Self::Act).map_err(|error: ParseActionError| {
            let verbs = std::iter::once("net").chain(words(Action::SYNTAX));
            ParseStepError::of_step(error, &[verb], Action::SYNTAX, verbs)
        })
    }
}

/// Parses a time and a step.
fn timed_step(line: &str) -> Result<(Duration, Step), ParseStepError> {
    let (at, step) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let at = parse_time(at)?;
    if step.is_empty() {
        return Err(ParseStepError::of_line("the step is missing"));
    }
    Ok((at, step.trim().parse()?))
}

/// Parses the time at the beginning of a line in a scenario, such as `1.5s` or `250ms`.
///
/// # Errors
///
/// If `text` is not a valid time.
pub fn parse_time(text: &str) -> Result<Duration, ParseStepError> {
    let time = match text.strip_suffix("ms") {
        Some(millis) => millis.parse().ok().map(Duration::from_millis),
        None => text.strip_suffix('s').and_then(|text| parse_seconds(text).ok()),
    };
    time.ok_or_else(|| ParseStepError::of_line(format_args!("`{text}` is not a time")))
}

/// Returns the first word of each line of `syntax` that begins with a verb.
fn words(syntax: &'static str) -> impl Iterator<Item = &'static str> {
    syntax
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
}
