//! The help page, which explains keys and symbols.

use ratatui::layout::Rect;

use super::{
    super::canvas::{Canvas, line},
    events, rest,
};
use crate::terminal::{Tone, wrap_to};

const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    ("Up, Down", "select a server; also k and j"),
    ("d, Enter", "details of the selected server instead of events"),
    ("r", "next read preference: which servers are marked"),
    ("s", "order: worst first, by address, slowest first"),
    ("/", "filter by address, state or tag; Escape clears it"),
    ("p", "freeze the view; monitoring goes on"),
    ("w", "save all since the start as a recording"),
    ("Page Up/Down", "scroll the events"),
    ("Ctrl-L, Ctrl-Z", "redraw; suspend"),
];

const MEANINGS: &[(&str, &str)] = &[
    ("RTT", "average round-trip time in ms; MIN and P90 of 10"),
    ("FOR, SEEN", "age of the role; age of the last answer"),
    ("WHY", "why reads may go there or not, or the error"),
    ("POOL", "generation of a client's pool; a watcher has none"),
    ("flaps", "servers lost and step-downs in the last hour"),
];

/// The width of the column of keys.
const KEY: usize = 15;

pub(super) fn help(canvas: &mut Canvas<'_>, area: Rect) {
    events::heading(canvas, line(area, 0), "help: any key closes it");
    let body = rest(area, 1, area.height.saturating_sub(1));
    let levels = canvas.glyphs.pick(
        ". <2  - <10  = <20  + <50  * <100  # more ms  x lost",
        "▁1 ▂2 ▃5 ▄10 ▅20 ▆50 ▇100 █ more ms, × lost",
    );
    let lines = KEYS.iter().chain(MEANINGS).copied();
    let lines = lines.chain([("LAST", levels)]);
    let mut number = 0;
    for (key, meaning) in lines {
        let mut label = format!("{key:KEY$}");
        let words = wrap_to(meaning, usize::from(area.width).saturating_sub(KEY));
        if number + words.len() > usize::from(body.height) {
            let last = line(body, body.height.saturating_sub(1));
            canvas.text(last, Tone::Faint, "a larger window shows the rest; `sdam watch --help`");
            break;
        }
        for words in words {
            let texts = [(Tone::Strong, &*label), (Tone::Normal, &words)];
            canvas.texts(line(body, number as u16), &texts);
            number += 1;
            label = " ".repeat(KEY);
        }
    }
}
