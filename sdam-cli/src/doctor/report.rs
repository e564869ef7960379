//! The findings as text and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{
    finding::{Check, Finding, Status, first_problem, verdict},
    findings::counted,
    observation::Observation,
};
use crate::terminal::{Palette, Tone, columns, json_line, wrap};

/// The columns of the matrix of servers; the TLS column combines two checks.
const COLUMNS: [(&str, &[Check]); 4] = [
    ("addr", &[Check::DnsAddr]),
    ("tcp", &[Check::Tcp]),
    ("tls", &[Check::TlsHandshake, Check::TlsVerify]),
    ("hello", &[Check::Hello]),
];

/// Formats a matrix of the servers, the findings (without passed checks unless `verbose`), and a
/// summary.
pub(super) fn text(
    palette: Palette,
    findings: &[Finding],
    seen: &Observation,
    verbose: bool,
) -> String {
    let mut text = matrix(palette, findings, seen);
    for finding in findings {
        let is_info = finding.status == Status::Info && !finding.suppressed;
        if finding.is_problem() || is_info || (verbose && finding.status != Status::Skip) {
            block(&mut text, palette, finding);
        }
    }
    let (tone, lines) = summary(findings, seen);
    for line in lines {
        let _ = writeln!(text, "{}", palette.paint(tone, line));
    }
    text
}

/// Returns the tone and the two parts of the summary: the number of findings with each status, and
/// the first problem.
fn summary(findings: &[Finding], seen: &Observation) -> (Tone, [String; 2]) {
    let count = |status| {
        let counted = findings.iter().filter(|own| !own.suppressed);
        counted.filter(|own| own.status == status).count()
    };
    let suppressed = findings.iter().filter(|own| own.suppressed).count();
    let accepted = match suppressed {
        0 => String::new(),
        suppressed => format!(", {suppressed} suppressed"),
    };
    let numbers = format!(
        "{}, {}: {} fail, {} warn, {} skipped{accepted}.",
        counted(seen.hosts.len(), "host", "hosts"),
        counted(findings.len(), "check", "checks"),
        count(Status::Fail) + count(Status::Error),
        count(Status::Warn),
        count(Status::Skip),
    );
    match first_problem(findings) {
        Some(first) => (Tone::Bad, [numbers, format!("First problem: {}", first.name())]),
        None => (Tone::Good, [numbers, "No problem was found".to_owned()]),
    }
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
        let address = format!("{:width$}", host.address.as_str());
        let _ = write!(text, "{}  ", palette.paint(Tone::Strong, address));
        let own = |checks: &[Check]| {
            let about = findings.iter().filter(|finding| {
                finding.subject.as_deref() == Some(host.address.as_str())
                    && checks.contains(&finding.step.unwrap_or(finding.check))
            });
            about.map(|finding| finding.status).max()
        };
        for (_, checks) in COLUMNS {
            let (tone, word) = match own(checks) {
                Some(Status::Info) => mark(Status::Ok),
                Some(Status::Skip) | None => (Tone::Faint, "-    "),
                Some(status) => mark(status),
            };
            let _ = write!(text, "{} ", palette.paint(tone, word));
        }
        let rtt = host.greeting.as_ref().and_then(super::observation::Greeting::average);
        let rtt = rtt.map_or("-".to_owned(), |rtt| format!("{:.1} ms", rtt.as_secs_f64() * 1e3));
        let _ = writeln!(text, "{rtt}");
    }
    text
}

/// Formats one finding: its title, evidence, causes and remedies.
fn block(text: &mut String, palette: Palette, finding: &Finding) {
    let (tone, word) = mark(finding.status);
    let accepted = if finding.suppressed { " (suppressed)" } else { "" };
    let title = format!("{}  {}{accepted}", finding.name(), finding.title);
    let mut margin = palette.paint(tone, word);
    for line in wrap(&title, 5) {
        let _ = writeln!(text, "{margin}{}", palette.paint(Tone::Strong, line));
        "     ".clone_into(&mut margin);
    }
    for (name, value) in &finding.evidence {
        let shown = match value {
            Value::Null => continue,
            Value::Array(list) if list.is_empty() => continue,
            Value::Array(list) => {
                let words =
                    list.iter().map(|own| own.as_str().map_or(own.to_string(), str::to_owned));
                words.collect::<Vec<_>>().join(", ")
            }
            Value::String(word) => word.clone(),
            Value::Number(number) if number.is_f64() => {
                let tenths = (number.as_f64().unwrap_or_default() * 10.0).round();
                // Adding 0.0 turns -0.0 into 0.0.
                format!("{:.1}", tenths / 10.0 + 0.0)
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

/// Returns the word for a status, padded to five columns, and its tone.
fn mark(status: Status) -> (Tone, &'static str) {
    match status {
        Status::Ok => (Tone::Good, "ok   "),
        Status::Info => (Tone::Faint, "info "),
        Status::Skip => (Tone::Faint, "skip "),
        Status::Warn => (Tone::Doubtful, "warn "),
        Status::Fail => (Tone::Bad, "FAIL "),
        Status::Error => (Tone::Bad, "ERR  "),
    }
}

fn labelled(text: &mut String, palette: Palette, label: &str, words: &str) {
    let mut label = format!("     {label:9} ");
    let indent = columns(&label);
    for line in wrap(words, indent) {
        let line = palette.paint(Tone::Normal, line);
        let _ = writeln!(text, "{}{line}", palette.paint(Tone::Faint, &label));
        label = " ".repeat(indent);
    }
}

/// Formats one JSON document, `sdam.doctor/1`.
pub(super) fn json(target: &str, is_simulated: bool, findings: &[Finding]) -> String {
    let (accepted, counting): (Vec<_>, Vec<_>) = findings.iter().partition(|own| own.suppressed);
    let statuses =
        [Status::Ok, Status::Info, Status::Warn, Status::Fail, Status::Skip, Status::Error];
    let mut summary = Map::from_iter(statuses.map(|status| {
        let count = counting.iter().filter(|own| own.status == status).count();
        (status.to_string(), count.into())
    }));
    summary.insert("suppressed".to_owned(), accepted.len().into());
    let checks = findings.iter().map(|finding| {
        let evidence = finding.evidence.iter();
        let evidence: Map<_, _> =
            evidence.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        json!({
            "id": finding.check.to_string(),
            "subject": finding.subject,
            "status": finding.status.to_string(),
            "suppressed": finding.suppressed,
            "title": finding.title,
            "evidence": evidence,
            "causes": finding.causes,
            "remedies": finding.remedies,
            "blockedBy": finding.blocked_by,
            "ms": finding.took.map(|took| took.as_secs_f64() * 1e3),
        })
    });
    let document = json!({
        "schema": "sdam.doctor/1",
        "tool": env!("CARGO_PKG_VERSION"),
        "target": target,
        "simulated": is_simulated,
        "verdict": verdict(findings).to_string(),
        "summary": summary,
        "checks": checks.collect::<Vec<_>>(),
    });
    format!("{}\n", json_line(&document))
}
