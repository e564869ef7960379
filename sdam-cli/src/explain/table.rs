//! The table of the servers and their verdicts, in 80 columns.

use std::fmt::Write;

use sdam_core::{address::ServerAddress, topology::TopologyDescription};
use sdam_select::{
    diagnose::Diagnosis,
    explain::{ExplainedServer, Explanation, Verdict},
};

use crate::terminal::{Palette, Tone, WIDTH, columns, wrap};

/// The width of the mark before a server's address.
const MARK: usize = 2;
/// The width of the type column, enough for `RSSecondary`, the longest type that can be selected,
/// and for most other types.
const TYPE: usize = 11;
/// The width of the round-trip time column, enough for `999.99 ms`.
const RTT: usize = 9;
/// The minimum width of a verdict beside the other columns.
const VERDICT: usize = 25;

/// Formats the criteria, the selected server, and the others with the reasons for their rejection.
pub(super) fn explanation(
    palette: Palette,
    topology: &TopologyDescription,
    explanation: &Explanation,
    chosen: Option<&ServerAddress>,
) -> String {
    let mut text = String::new();
    let headline = format!("{} on {}", explanation.operation, explanation.topology_type);
    paragraph(&mut text, palette, Tone::Strong, &headline, 0);
    if let Some(refusal) = &explanation.refusal {
        paragraph(&mut text, palette, Tone::Bad, &refusal.to_string(), MARK);
    }
    let lengths = explanation.servers.iter().map(|server| columns(server.address.as_str()));
    let width = lengths.max().unwrap_or_default();
    for server in &explanation.servers {
        let is_chosen = Some(&server.address) == chosen;
        let rtt = topology.server(&server.address).and_then(|known| known.rtt);
        let row = format!(
            "{:MARK$}{:width$}  {:TYPE$}  {:>RTT$}  ",
            if is_chosen { ">" } else { "" },
            server.address.as_str(),
            server.server_type,
            rtt.map(|rtt| format!("{:.2} ms", rtt.average.as_secs_f64() * 1e3)).unwrap_or_default(),
        );
        let (tone, verdict) = verdict(server, is_chosen);
        let indent = columns(&row);
        // Put a long address on its own line.
        let (indent, mut row) = if indent + VERDICT <= WIDTH {
            (indent, row)
        } else {
            (MARK + 2, format!("{row}\n{:1$}", "", MARK + 2))
        };
        for line in wrap(&verdict, indent) {
            let _ = writeln!(text, "{row}{}", palette.paint(tone, line));
            row = " ".repeat(indent);
        }
    }
    text
}

fn verdict(server: &ExplainedServer, is_chosen: bool) -> (Tone, String) {
    match (&server.verdict, &server.error) {
        (Verdict::Eligible { .. }, _) if server.refuses => {
            (Tone::Bad, "is selected, as the connection is direct, but refuses this".to_owned())
        }
        (Verdict::Eligible { .. }, _) if is_chosen => (Tone::Good, "is selected".to_owned()),
        (Verdict::Eligible { .. }, _) => (Tone::Fair, "is in the latency window".to_owned()),
        (_, Some(error)) if !server.server_type.is_available() => {
            (Tone::Bad, format!("is not available: {error:#}"))
        }
        (_, None) if !server.server_type.is_available() => {
            (Tone::Doubtful, "has not answered yet".to_owned())
        }
        (Verdict::Rejected(rejection), _) => (Tone::Faint, rejection.to_string()),
        (_, _) => (Tone::Faint, "was not considered".to_owned()),
    }
}

/// Formats the probable problems of the deployment, which may exist even if a server was selected.
pub(super) fn diagnoses(palette: Palette, diagnoses: &[Diagnosis]) -> String {
    let mut text = String::new();
    for diagnosis in diagnoses {
        let words = format!("note: {diagnosis}; {}", diagnosis.remedy());
        paragraph(&mut text, palette, Tone::Doubtful, &words, 0);
    }
    text
}

/// Formats the changes that would make the rejected servers eligible.
pub(super) fn changes(palette: Palette, changes: &[(ServerAddress, String)]) -> String {
    let mut text = String::new();
    if !changes.is_empty() {
        paragraph(&mut text, palette, Tone::Strong, "what would include the others", 0);
    }
    for (address, change) in changes {
        let words = format!("{address}: {change}");
        paragraph(&mut text, palette, Tone::Normal, &words, MARK);
    }
    text
}

/// Wraps lines that may be longer than the screen, keeping their indentation.
pub(super) fn lines(lines: &str) -> String {
    let mut text = String::new();
    for line in lines.lines() {
        let own = columns(line) - columns(line.trim_start());
        paragraph(&mut text, Palette::Plain, Tone::Normal, line, own);
    }
    text
}

fn paragraph(text: &mut String, palette: Palette, tone: Tone, words: &str, indent: usize) {
    // Continuation lines are indented further.
    for (index, line) in wrap(words, indent + 2).into_iter().enumerate() {
        let indent = indent + if index > 0 { 2 } else { 0 };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:indent$}{}", "", palette.paint(tone, line));
    }
}
