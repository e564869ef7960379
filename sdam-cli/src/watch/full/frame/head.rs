//! Draws the lines above and below the table: title, alerts, selection and keys.

use ratatui::layout::Rect;
use sdam_core::ids::ObjectId;
use sdam_select::explain::Explanation;

use super::{
    super::{
        super::model::brief_type,
        canvas::{Canvas, age, line, width, wrap},
    },
    View,
    alerts::Alert,
};
use crate::terminal::Tone;

/// The minimum width for a complete title.
const WHOLE: u16 = 72;

/// Draws the title, and returns the area of its clock.
pub(super) fn title(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>) -> Rect {
    let model = scene.model;
    let topology = &model.topology;
    let is_whole = area.width >= WHOLE;
    let mut time = scene.time(model.now);
    time.truncate("12:34:56".len());
    let source = if scene.state.frozen.is_some() { "PAUSED" } else { scene.source };
    let mut end = format!(" {source}");
    if is_whole && !scene.recording.is_empty() {
        end = format!("{end} {}", scene.recording);
    }
    let right = format!("{time}Z{end}");
    let tone = if scene.state.frozen.is_some() { Tone::Doubtful } else { Tone::Faint };
    let place = canvas.text_right(area, tone, &right);
    let clock = Rect { width: place.width.min(time.len() as u16), ..place };
    let left = Rect { width: area.width.saturating_sub(place.width + 1), ..area };
    let program = if is_whole { "sdam watch  " } else { "" };
    let left = canvas.text(left, Tone::Strong, program);
    let name = topology.set_name().map(|name| format!("{name} "));
    let left = canvas.text(left, Tone::Strong, &name.unwrap_or_default());
    let kind = topology.topology_type();
    let is_good = model.facts.is_writable();
    let tone = if is_good { Tone::Good } else { Tone::Bad };
    let left = canvas.text(left, tone, if is_whole { kind.as_str() } else { brief_type(kind) });
    let since = age(model.now.since(model.type_since));
    let left = canvas.text(left, Tone::Normal, &format!(" {since}"));
    let term = topology.primary().and_then(|primary| primary.election.election_id);
    let term = term.or(topology.max_election().election_id).and_then(term_of);
    if let Some(term) = term.filter(|_| is_whole) {
        canvas.text(left, Tone::Normal, &format!("  term {term}"));
    }
    clock
}

/// Returns the election term in an election id, which consists of `7fffffff` and the term.
pub(super) fn term_of(election: ObjectId) -> Option<u64> {
    let bytes = election.bytes();
    let (mark, term) = bytes.split_at(4);
    let term = <[u8; 8]>::try_from(term).ok()?;
    (mark == [0x7f, 0xff, 0xff, 0xff]).then(|| u64::from_be_bytes(term))
}

/// A line of an alert.
pub(super) struct Line {
    tone: Tone,
    words: String,
    /// True if the line only explains the alert.
    is_step: bool,
}

/// Breaks alerts into at most `room` lines. If space is short, omits explanations first.
pub(super) fn lines(alerts: &[Alert], width: u16, room: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for Alert { tone, parts, steps } in alerts {
        let parts = joined(parts, " ", usize::from(width)).into_iter();
        lines.extend(parts.map(|words| Line { tone: *tone, words, is_step: false }));
        let steps = joined(steps, " | ", usize::from(width).saturating_sub(INDENT));
        lines.extend(steps.into_iter().map(|words| Line {
            tone: Tone::Normal,
            words: format!("{:INDENT$}{words}", ""),
            is_step: true,
        }));
    }
    while lines.len() > room {
        let last_step = lines.iter().rposition(|line| line.is_step);
        lines.remove(last_step.unwrap_or(lines.len() - 1));
    }
    lines
}

/// The indentation of continuation lines, in columns.
const INDENT: usize = 3;

/// Joins parts into lines of `room` columns; all lines but the first are indented.
fn joined(parts: &[String], separator: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // A part that is wider than a line is broken between words.
    let parts = parts.iter().flat_map(|part| {
        if width(part) > room {
            wrap(part, room.saturating_sub(INDENT))
        } else {
            vec![part.clone()]
        }
    });
    for part in parts {
        match lines.last_mut() {
            Some(line) if width(line) + width(separator) + width(&part) <= room => {
                line.push_str(separator);
                line.push_str(&part);
            }
            Some(_) if separator == " " => lines.push(format!("{:INDENT$}{part}", "")),
            _ => lines.push(part),
        }
    }
    lines
}

/// Draws the lines of alerts.
pub(super) fn alerts(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>, lines: &[Line]) {
    for (number, own) in lines.iter().enumerate() {
        let mut place = line(area, number as u16);
        let flaps = format!("  flaps {}/h", scene.model.flaps(None));
        let has_room = width(&own.words) + width(&flaps) <= usize::from(place.width);
        if number == 0 && scene.model.flaps(None) > 0 && has_room {
            let taken = canvas.text_right(place, Tone::Doubtful, &flaps);
            place.width -= taken.width;
        }
        canvas.text(place, own.tone, &own.words);
    }
}

/// Draws everything on one line, for a screen that is too small for a table.
pub(super) fn single_line(canvas: &mut Canvas<'_>, scene: &View<'_>, alerts: &[Alert]) {
    let area = line(canvas.area(), 0);
    let topology = &scene.model.topology;
    let name = topology.set_name().unwrap_or("sdam");
    let mut place = canvas.text(area, Tone::Strong, name);
    place = canvas.text(place, Tone::Normal, " ");
    if let Some(primary) = topology.primary() {
        let primary = format!("{} ", scene.names.of_server(&primary.address));
        place = canvas.text(place, Tone::Good, &primary);
    }
    if let Some(alert) = alerts.first() {
        canvas.text(place, alert.tone, &alert.parts.join(" "));
    }
}

/// Draws the servers that are eligible for writes and for reads.
pub(super) fn selection(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>) {
    let model = scene.model;
    let writes = model.explain(None);
    let threshold = scene.reads.as_ref().and_then(threshold);
    let (writes, reads) = (names(scene, writes.as_ref()), names(scene, scene.reads.as_ref()));
    let tone = |names: &str| match names {
        "none" => Tone::Bad,
        _ => Tone::Normal,
    };
    let preference = format!("  read({}): ", scene.state.preference.mode);
    let place = canvas.texts(
        area,
        &[
            (Tone::Faint, "write: "),
            (tone(&writes), &writes),
            (Tone::Faint, &preference),
            (tone(&reads), &reads),
        ],
    );
    if let Some(threshold) = threshold {
        let words = format!("  window {threshold}");
        if width(&words) <= usize::from(place.width) {
            canvas.text(place, Tone::Faint, &words);
        }
    }
}

/// Returns the width of the latency window if it has excluded a server from selection.
fn threshold(explanation: &Explanation) -> Option<String> {
    use sdam_select::explain::{Rejection, Verdict};

    explanation.servers.iter().find_map(|server| match &server.verdict {
        Verdict::Rejected(Rejection::Latency { threshold, .. }) => {
            Some(format!("{} ms", threshold.as_millis()))
        }
        _ => None,
    })
}

fn names(scene: &View<'_>, explanation: Option<&Explanation>) -> String {
    let Some(explanation) = explanation else {
        return "invalid".to_owned();
    };
    let names: Vec<&str> =
        explanation.serving().map(|server| scene.names.of_server(&server.address)).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

/// The keys to show on the last line; those that do not fit are omitted.
const KEYS: [(&str, &str); 8] = [
    ("q", "quit"),
    ("?", "help"),
    ("p", "pause"),
    ("r", "read preference"),
    ("d", "details"),
    ("s", "sort"),
    ("/", "filter"),
    ("w", "save"),
];

/// Draws the list of keys, or the response to the last key that the user pressed.
pub(super) fn keys(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>) {
    let state = scene.state;
    let prompt = if state.is_filtering {
        Some((format!("filter: {}_", state.filter), "  Enter keeps it, Escape clears it"))
    } else {
        state.message.clone().map(|message| (message, ""))
    };
    if let Some((words, hint)) = prompt {
        canvas.texts(area, &[(Tone::Strong, &words), (Tone::Faint, hint)]);
        return;
    }
    let mut place = area;
    if let Some(frozen) = &state.frozen {
        let words = format!("PAUSED at {}, p continues  ", scene.time(frozen.now));
        place = canvas.text(place, Tone::Doubtful, &words);
    }
    if !state.filter.is_empty() {
        let words = format!("filter `{}`, Escape clears it  ", state.filter);
        place = canvas.text(place, Tone::Doubtful, &words);
    }
    let mut gap = "";
    for (key, meaning) in KEYS {
        if width(gap) + width(key) + 1 + width(meaning) > usize::from(place.width) {
            break;
        }
        let texts = [(Tone::Strong, key), (Tone::Normal, " "), (Tone::Faint, meaning)];
        place = canvas.text(place, Tone::Normal, gap);
        place = canvas.texts(place, &texts);
        gap = "  ";
    }
}
