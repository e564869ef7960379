//! The findings as text and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{
    check::Check,
    finding::{Finding, Status, verdict},
    findings::counted,
    observation::Observation,
};
use crate::terminal::{Palette, Tone, columns, wrap};

/// The columns of the matrix; that of TLS is of two checks.
const COLUMNS: [(&str, &[Check]); 4] = [
    ("addr", &[Check::DnsAddr]),
    ("tcp", &[Check::Tcp]),
    ("tls", &[Check::TlsHandshake, Check::TlsVerify]),
    ("hello", &[Check::Hello]),
];

/// Returns the lines of `--list`.
pub(super) fn list() -> String {
    let mut text = String::new();
    for check in Check::ALL {
        let _ = writeln!(text, "{:14} {}", check.id(), check.question());
    }
    text
}

/// Formats a matrix of the servers, the findings that are not well, or all, and a summary.
pub(super) fn text(
    palette: Palette,
    findings: &[Finding],
    seen: &Observation,
    verbose: bool,
) -> String {
    let mut text = matrix(palette, findings, seen);
    for finding in findings {
        let shown = finding.is_problem() || finding.status == Status::Info;
        if shown || (verbose && finding.status != Status::Skip) {
            block(&mut text, palette, finding);
        }
    }
    let count = |status| findings.iter().filter(|own| own.status == status).count();
    let first = findings.iter().find(|own| own.is_problem());
    let (tone, end) = match first {
        Some(first) => (Tone::Bad, format!("First problem: {}", first.name())),
        None => (Tone::Good, "No problem was found".to_owned()),
    };
    let summary = format!(
        "{}, {}: {} fail, {} warn, {} skipped.",
        counted(seen.hosts.len(), "host", "hosts"),
        counted(findings.len(), "check", "checks"),
        count(Status::Fail) + count(Status::Error),
        count(Status::Warn),
        count(Status::Skip),
    );
    for line in [summary, end] {
        let _ = writeln!(text, "{}", palette.paint(tone, line));
    }
    text
}

fn matrix(palette: Palette, findings: &[Finding], seen: &Observation) -> String {
    let mut text = String::new();
    if seen.hosts.is_empty() {
        return text;
    }
    let widths = seen.hosts.iter().map(|host| columns(host.address.as_str()));
    let width = widths.max().unwrap_or_default();
    let head = COLUMNS.map(|(name, _)| format!("{name:5}")).join(" ");
    let head = format!("{:width$}  {head} rtt", "");
    let _ = writeln!(text, "{}", palette.paint(Tone::Faint, head));
    for host in &seen.hosts {
        let _ = write!(
            text,
            "{}  ",
            palette.paint(Tone::Strong, format!("{:width$}", host.address.as_str()))
        );
        let own = |checks: &[Check]| {
            let about = findings.iter().filter(|finding| {
                finding.subject.as_deref() == Some(host.address.as_str())
                    && checks.contains(&finding.step.unwrap_or(finding.check))
            });
            about.map(|finding| finding.status).max()
        };
        for (_, checks) in COLUMNS {
            let (tone, word) = match own(checks) {
                Some(Status::Ok | Status::Info) => (Tone::Good, "ok"),
                Some(Status::Warn) => (Tone::Doubtful, "warn"),
                Some(Status::Fail) => (Tone::Bad, "FAIL"),
                Some(Status::Error) => (Tone::Bad, "ERROR"),
                Some(Status::Skip) | None => (Tone::Faint, "-"),
            };
            let _ = write!(text, "{} ", palette.paint(tone, format!("{word:5}")));
        }
        let rtt = host
            .greeting
            .as_ref()
            .and_then(super::observation::Greeting::average);
        let rtt = rtt.map_or("-".to_owned(), |rtt| {
            format!("{:.1} ms", rtt.as_secs_f64() * 1e3)
        });
        let _ = writeln!(text, "{rtt}");
    }
    text
}

/// Formats one finding: what, why, and what to do.
fn block(text: &mut String, palette: Palette, finding: &Finding) {
    let tone = match finding.status {
        Status::Ok => Tone::Good,
        Status::Info | Status::Skip => Tone::Faint,
        Status::Warn => Tone::Doubtful,
        Status::Fail | Status::Error => Tone::Bad,
    };
    let word = match finding.status {
        Status::Fail | Status::Error => finding.status.name().to_uppercase(),
        status => status.name().to_owned(),
    };
    let title = format!("{}  {}", finding.name(), finding.title);
    let mut mark = palette.paint(tone, format!("{word:5}")).to_string();
    for line in wrap(&title, 5) {
        let _ = writeln!(text, "{mark}{}", palette.paint(Tone::Strong, line));
        "     ".clone_into(&mut mark);
    }
    for (name, value) in &finding.evidence {
        let shown = match value {
            Value::Null => continue,
            Value::Array(list) if list.is_empty() => continue,
            Value::Array(list) => {
                let words = list
                    .iter()
                    .map(|own| own.as_str().map_or(own.to_string(), str::to_owned));
                words.collect::<Vec<_>>().join(", ")
            }
            Value::String(word) => word.clone(),
            Value::Number(number) if number.is_f64() => {
                format!("{:.1}", number.as_f64().unwrap_or_default())
            }
            other => other.to_string(),
        };
        labelled(text, palette, name, &shown);
    }
    let causes = finding.causes.iter().map(|cause| ("cause", cause));
    for (label, words) in causes.chain(finding.remedies.iter().map(|own| ("do", own))) {
        labelled(text, palette, label, words);
    }
}

fn labelled(text: &mut String, palette: Palette, label: &str, words: &str) {
    let mut label = format!("     {label:9} ");
    let indent = columns(&label);
    for line in wrap(words, indent) {
        let _ = writeln!(
            text,
            "{}{}",
            palette.paint(Tone::Faint, &label),
            palette.paint(Tone::Normal, line)
        );
        label = " ".repeat(indent);
    }
}

/// Formats one JSON document, `sdam.doctor/1`.
pub(super) fn json(target: &str, findings: &[Finding]) -> String {
    let summary: Map<_, _> = Status::ALL
        .iter()
        .map(|status| {
            let count = findings.iter().filter(|own| own.status == *status).count();
            (status.name().to_owned(), count.into())
        })
        .collect();
    let checks = findings.iter().map(|finding| {
        let evidence = finding.evidence.iter();
        let evidence: Map<_, _> = evidence
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        json!({
            "id": finding.check.id(),
            "subject": finding.subject,
            "status": finding.status.name(),
            "title": finding.title,
            "evidence": evidence,
            "causes": finding.causes,
            "remedies": finding.remedies,
            "blocked_by": finding.blocked_by,
            "ms": finding.took.map(|took| took.as_secs_f64() * 1e3),
        })
    });
    let document = json!({
        "schema": "sdam.doctor/1",
        "tool": env!("CARGO_PKG_VERSION"),
        "target": target,
        "verdict": verdict(findings).name(),
        "summary": summary,
        "checks": checks.collect::<Vec<_>>(),
    });
    format!("{document}\n")
}
