//! The answer of a check.

use std::time::Duration;

use serde_json::Value;

use super::check::Check;
use crate::exit::Exit;

/// How good an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Ok,
    Info,
    /// Not asked, because an earlier check of the same host has failed.
    Skip,
    Warn,
    Fail,
    /// The check itself could not be made.
    Error,
}

impl Status {
    /// Every status.
    pub(super) const ALL: [Self; 6] = [
        Self::Ok,
        Self::Info,
        Self::Warn,
        Self::Fail,
        Self::Skip,
        Self::Error,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Error => "error",
        }
    }
}

/// The answer of one check about one subject.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) check: Check,
    /// The step of the connection that failed, if the check is about the whole of it.
    pub(super) step: Option<Check>,
    /// A server, or another subject; `None` for the deployment as a whole.
    pub(super) subject: Option<String>,
    pub(super) status: Status,
    /// One sentence without its full stop.
    pub(super) title: String,
    pub(super) evidence: Vec<(&'static str, Value)>,
    /// Probable causes; several if they cannot be told apart from here.
    pub(super) causes: Vec<String>,
    pub(super) remedies: Vec<String>,
    /// What has to be repaired first, if the check was skipped.
    pub(super) blocked_by: Option<String>,
    pub(super) took: Option<Duration>,
}

impl Finding {
    pub(super) fn new(check: Check, status: Status, title: impl Into<String>) -> Self {
        Self {
            check,
            step: None,
            subject: None,
            status,
            title: title.into(),
            evidence: Vec::new(),
            causes: Vec::new(),
            remedies: Vec::new(),
            blocked_by: None,
            took: None,
        }
    }

    pub(super) fn about(mut self, subject: &(impl ToString + ?Sized)) -> Self {
        self.subject = Some(subject.to_string());
        self
    }

    pub(super) fn evidence(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.evidence.push((name, value.into()));
        self
    }

    pub(super) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedies.push(remedy.into());
        self
    }

    pub(super) fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }

    /// Returns the id of the check and its subject.
    pub(super) fn name(&self) -> String {
        match &self.subject {
            Some(subject) => format!("{} {subject}", self.check.id()),
            None => self.check.id().to_owned(),
        }
    }

    pub(super) fn is_problem(&self) -> bool {
        matches!(self.status, Status::Warn | Status::Fail | Status::Error)
    }
}

/// Returns the worst status.
pub(super) fn verdict(findings: &[Finding]) -> Status {
    let problems = findings.iter().filter(|finding| finding.is_problem());
    let worst = problems.map(|finding| finding.status).max();
    worst.unwrap_or(Status::Ok)
}

/// Returns the exit code for the worst finding.
pub(super) fn exit(findings: &[Finding]) -> Exit {
    let mut strings = findings.iter().filter(|own| own.check == Check::Uri);
    if strings.any(|own| own.status == Status::Fail) {
        return Exit::CONFIGURATION;
    }
    match verdict(findings) {
        Status::Error => Exit::FAILED,
        Status::Fail => Exit::FAILURES,
        Status::Warn => Exit::WARNINGS,
        Status::Ok | Status::Info | Status::Skip => Exit::SUCCESS,
    }
}
