//! The checks, and the findings that they lead to.

use std::time::Duration;

use serde_json::Value;
use strum::VariantArray as _;

use super::{FailOn, Suppression};
use crate::exit::Exit;

/// The maximum number of items in a list given as evidence.
const MAX_LISTED: usize = 32;
/// The maximum length of a string given as evidence, in characters.
const MAX_LENGTH: usize = 1_000;

/// A check. Its name never changes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Check {
    Uri,
    #[strum(serialize = "dns.srv")]
    DnsSrv,
    #[strum(serialize = "dns.addr")]
    DnsAddr,
    Tcp,
    #[strum(serialize = "tls.handshake")]
    TlsHandshake,
    #[strum(serialize = "tls.verify")]
    TlsVerify,
    Hello,
    #[strum(serialize = "topo.kind")]
    TopoKind,
    #[strum(serialize = "topo.members")]
    TopoMembers,
    #[strum(serialize = "topo.primary")]
    TopoPrimary,
    Clock,
    Lag,
    Rtt,
    Auth,
    Select,
    Write,
}

impl Check {
    /// Returns the check whose id is `id`.
    pub(super) fn of(id: &str) -> Result<Self, String> {
        let found = Self::VARIANTS.iter().copied().find(|check| check.to_string() == id);
        found.ok_or_else(|| {
            let ids: Vec<_> = Self::VARIANTS.iter().map(ToString::to_string).collect();
            format!("there is no such check; the checks are {}", ids.join(", "))
        })
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Status {
    Ok,
    Info,
    /// Skipped, because an earlier check of the same host failed.
    Skip,
    Warn,
    Fail,
    /// The check could not be made.
    Error,
}

/// The finding of one check about one subject.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) check: Check,
    /// The step of the connection that failed, if the check covers all steps of a connection.
    pub(super) step: Option<Check>,
    /// The server or other subject that the finding is about; `None` for the deployment as a whole.
    pub(super) subject: Option<String>,
    pub(super) status: Status,
    /// The finding in one sentence, without a full stop.
    pub(super) title: String,
    pub(super) evidence: Vec<(&'static str, Value)>,
    /// The probable causes. There are several if the doctor cannot tell which one applies.
    pub(super) causes: Vec<String>,
    pub(super) remedies: Vec<String>,
    /// The name of the finding to fix first, if that finding is the reason why the check was
    /// skipped.
    pub(super) blocked_by: Option<String>,
    pub(super) took: Option<Duration>,
    /// True if the user has accepted the finding.
    pub(super) suppressed: bool,
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
            suppressed: false,
        }
    }

    pub(super) fn about(mut self, subject: &(impl ToString + ?Sized)) -> Self {
        self.subject = Some(subject.to_string());
        self
    }

    /// Creates the finding of a check that found no problem.
    pub(super) fn ok(check: Check, title: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, title)
    }

    pub(super) fn warn(check: Check, title: impl Into<String>) -> Self {
        Self::new(check, Status::Warn, title)
    }

    pub(super) fn fail(check: Check, title: impl Into<String>) -> Self {
        Self::new(check, Status::Fail, title)
    }

    /// Adds evidence. Truncates long lists and strings, because the servers control their length.
    pub(super) fn evidence(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.evidence.push((name, cut(value.into())));
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

    /// Returns the name of the finding, which consists of the id of the check and the subject.
    pub(super) fn name(&self) -> String {
        match &self.subject {
            Some(subject) => format!("{} {subject}", self.check),
            None => self.check.to_string(),
        }
    }

    pub(super) fn is_problem(&self) -> bool {
        let is_bad = matches!(self.status, Status::Warn | Status::Fail | Status::Error);
        is_bad && !self.suppressed
    }

    /// Returns whether the finding reports an unusable connection string, which prevents all other
    /// checks.
    fn is_configuration(&self) -> bool {
        self.check == Check::Uri && self.status == Status::Fail
    }
}

/// Marks the findings that the user has accepted. Findings about a check that could not be made or
/// about an unusable connection string cannot be accepted.
pub(super) fn suppress(findings: &mut [Finding], suppressions: &[Suppression]) {
    for finding in findings {
        let is_finding = matches!(finding.status, Status::Info | Status::Warn | Status::Fail);
        let subject = finding.subject.as_deref();
        let mut accepted = suppressions.iter();
        finding.suppressed = is_finding
            && !finding.is_configuration()
            && accepted.any(|own| own.covers(finding.check, subject));
    }
}

/// Returns the worst status.
pub(super) fn verdict(findings: &[Finding]) -> Status {
    first_problem(findings).map_or(Status::Ok, |finding| finding.status)
}

/// Returns the first of the most severe problems.
pub(super) fn first_problem(findings: &[Finding]) -> Option<&Finding> {
    // Reverse the order, because `max_by_key` returns the last of several maxima.
    findings.iter().rev().filter(|own| own.is_problem()).max_by_key(|own| own.status)
}

/// Returns the exit code for the worst finding.
pub(super) fn exit(findings: &[Finding], fail_on: FailOn) -> Exit {
    if findings.iter().any(Finding::is_configuration) {
        return Exit::CONFIGURATION;
    }
    match verdict(findings) {
        Status::Error => Exit::FAILED,
        Status::Fail if fail_on <= FailOn::Failure => Exit::FAILURES,
        Status::Warn if fail_on <= FailOn::Warning => Exit::WARNINGS,
        _ => Exit::SUCCESS,
    }
}

fn cut(value: Value) -> Value {
    match value {
        Value::Array(mut list) => {
            let rest = list.len().saturating_sub(MAX_LISTED);
            list.truncate(MAX_LISTED);
            let mut list: Vec<_> = list.into_iter().map(cut).collect();
            list.extend((rest > 0).then(|| format!("and {rest} more").into()));
            list.into()
        }
        Value::String(text) if text.chars().count() > MAX_LENGTH => {
            let start: String = text.chars().take(MAX_LENGTH).collect();
            format!("{start}...").into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_and_texts_are_cut() {
        let finding = Finding::ok(Check::TlsVerify, "")
            .evidence("names", vec!["a".repeat(5_000); 1_000])
            .evidence("error", "\u{e9}".repeat(5_000));
        let names = finding.evidence[0].1.as_array().unwrap();
        assert_eq!(names.len(), MAX_LISTED + 1);
        assert_eq!(names[0].as_str().unwrap().len(), MAX_LENGTH + 3);
        assert_eq!(names[MAX_LISTED], "and 968 more");
        assert!(finding.evidence[1].1.as_str().unwrap().ends_with("\u{e9}..."));
    }
}
