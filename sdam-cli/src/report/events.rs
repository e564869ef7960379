//! The table of events.

use std::collections::HashMap;

use super::{
    html::{self, text},
    row::Kind,
    timeline::{Row, Timeline},
    verdict::nanos,
};

/// The maximum number of rows in the table.
const MAX_ROWS: usize = 2000;

/// The kinds that are left out, one after another, if there are too many rows.
const MINOR: [Kind; 3] = [Kind::Selection, Kind::HeartbeatFailed, Kind::Operation];

/// One row of the table: an event, or several equal events of one server.
struct Entry<'t> {
    row: &'t Row,
    count: u64,
    /// The time of the last of these events.
    last: u64,
}

/// Returns the section with the table. Answered heartbeats are only counted.
pub(super) fn section(timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
    let mut entries = folded(&timeline.rows);
    let mut hidden = Vec::new();
    let mut hide = |count: u64, what: &str| {
        if count > 0 {
            hidden.push(format!("{count} {what}"));
        }
    };
    hide(timeline.lanes.iter().map(|lane| lane.succeeded).sum(), "answered heartbeats");
    for kind in MINOR {
        if entries.len() > MAX_ROWS {
            let minor = entries.extract_if(.., |entry| entry.row.kind == kind);
            hide(
                minor.map(|entry| entry.count).sum(),
                &format!("of the kind \u{201c}{kind}\u{201d}"),
            );
        }
    }
    let end = entries.split_off(entries.len() - entries.len().min(MAX_ROWS / 2));
    let middle = entries.split_off(entries.len().min(MAX_ROWS / 2));
    let cut = match middle.last() {
        None => String::new(),
        Some(last) => {
            hide(middle.iter().map(|entry| entry.count).sum(), "in the middle");
            format!(
                "<tr class=\"cut\"><td colspan=\"5\">events up to {} are left out\n",
                clock(last.last)
            )
        }
    };
    let show = |entries: Vec<Entry<'_>>| -> String {
        entries.iter().map(|entry| entry.html(timeline, clock)).collect()
    };
    let rows = [show(entries), cut, show(end)].concat();
    let note = match &*hidden {
        [] => String::new(),
        hidden => format!("<p class=\"note\">Not listed: {}.\n", hidden.join(", ")),
    };
    let table = html::table("events", &["time", "event", "server", "what", "line"], &rows);
    format!("<section>\n<h2>Events</h2>\n{table}{note}</section>\n")
}

/// Combines an event with the preceding one of the same server if both say the same.
fn folded(rows: &[Row]) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut last: HashMap<Option<usize>, usize> = HashMap::new();
    for row in rows {
        let before = last.get(&row.lane).and_then(|index| entries.get_mut(*index));
        match before {
            Some(entry) if entry.row.kind == row.kind && entry.row.text == row.text => {
                entry.count += 1;
                entry.last = row.at;
            }
            _ => {
                last.insert(row.lane, entries.len());
                entries.push(Entry { row, count: 1, last: row.at });
            }
        }
    }
    entries
}

impl Entry<'_> {
    fn html(&self, timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
        let row = self.row;
        let server = row.lane.and_then(|lane| timeline.lanes.get(lane));
        let time = row.time.filter(|_| self.count == 1).map(nanos);
        let words = match time {
            Some(time) if row.kind == Kind::HeartbeatFailed => {
                format!("after {time}: {}", row.text)
            }
            Some(time) => format!("{} in {time}", row.text),
            None => row.text.clone(),
        };
        let repeated = match self.count {
            1 => String::new(),
            count => format!(
                " <span class=\"more\">{count} times until {}</span>",
                clock(self.last).trim_end_matches(" UTC")
            ),
        };
        let class = if row.kind.is_problem() { " class=\"problem\"" } else { "" };
        let cells = [
            clock(row.at).trim_end_matches(" UTC").to_owned(),
            row.kind.as_str().to_owned(),
            server.map_or_else(String::new, |lane| text(&lane.address)),
            text(&words) + &repeated,
            row.line.to_string(),
        ];
        let cells: String = cells.iter().flat_map(|cell| ["<td>", cell]).collect();
        format!("<tr{class}>{cells}\n")
    }
}
