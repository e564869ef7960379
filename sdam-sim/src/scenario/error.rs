//! The error returned when a step cannot be parsed.

use std::fmt;

/// The error returned when a [`Step`](super::Step), or a time and a step, cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct ParseStepError {
    reason: String,
    remedy: String,
}

impl ParseStepError {
    /// Returns the reason, with the invalid word in backquotes, such as "`explode` is not an
    /// action".
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns a suggested correction, such as "write it as `kill MEMBER`".
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Creates the error for an invalid line in a scenario.
    pub(super) fn of_line(what: impl fmt::Display) -> Self {
        Self {
            reason: what.to_string(),
            remedy: "write a line as `AT VERB ...`, such as `1.5s kill primary`".to_owned(),
        }
    }

    /// Creates the error for a step that begins with `words`. If `syntax` has a line for this step,
    /// the error quotes the part of that line that precedes the first double space. Otherwise it
    /// lists all `verbs`.
    pub(super) fn of_step(
        what: impl fmt::Display,
        words: &[&str],
        syntax: &'static str,
        verbs: impl Iterator<Item = &'static str>,
    ) -> Self {
        let is_it = |line: &&str| {
            let mut line = line.split_whitespace();
            words.iter().all(|word| line.next() == Some(*word))
        };
        let remedy = if let Some(line) = syntax.lines().find(is_it) {
            let usage = line.split_once("  ").map_or(line, |(usage, _)| usage);
            format!("write it as `{usage}`")
        } else {
            let verbs: Vec<_> = verbs.collect();
            format!("the verbs are {}", verbs.join(", "))
        };
        let reason = what.to_string();
        Self { reason, remedy }
    }
}
