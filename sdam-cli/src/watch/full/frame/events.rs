//! Draws the log of changes, the newest one last.

use ratatui::layout::Rect;

use super::{
    super::{
        super::model::Entry,
        canvas::{Canvas, line},
        text::width,
    },
    View,
    names::short,
    rest,
};
use crate::terminal::Tone;

/// The maximum width of an entry's subject.
const SUBJECT: usize = 24;

/// Draws the heading and as many entries as fit.
pub(super) fn events(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>) {
    let log = &scene.model.log;
    let scrolled = scene.state.scrolled;
    let title = match (scrolled, log.iter().len()) {
        (_, 0) => "events: none yet".to_owned(),
        (0, _) => "events, newest last".to_owned(),
        (scrolled, count) => format!("events, {scrolled} newer of {count}: Page Down"),
    };
    heading(canvas, line(area, 0), &title);
    let body = rest(area, 1, area.height.saturating_sub(1));
    let room = usize::from(body.height);
    let mut entries: Vec<_> = log.iter().rev().skip(scrolled).take(room).collect();
    entries.reverse();
    let name = |entry: &Entry| scene.names.shorten(&entry.subject);
    let names = entries.iter().map(|entry| width(&name(entry)));
    let limit = SUBJECT.min(usize::from(area.width) / 3);
    let subject = names.max().unwrap_or_default().min(limit);
    for (number, entry) in entries.into_iter().enumerate() {
        let name = canvas.glyphs.fit_middle(short(&name(entry)), subject);
        let padding = " ".repeat(subject.saturating_sub(width(&name)));
        let time = scene.time(entry.at);
        let words = scene.names.shorten(&entry.words);
        canvas.texts(
            line(body, number as u16),
            &[
                (Tone::Faint, &time),
                (Tone::Normal, " "),
                (Tone::Normal, &name),
                (Tone::Normal, &padding),
                (Tone::Normal, " "),
                (entry.tone, &words),
            ],
        );
    }
}

/// Draws a heading as a line across the whole width.
pub(super) fn heading(canvas: &mut Canvas<'_>, area: Rect, title: &str) {
    let bar = canvas.glyphs.pick("-", "─");
    let place = canvas.text(area, Tone::Faint, &bar.repeat(2));
    let place = canvas.texts(place, &[(Tone::Strong, " "), (Tone::Strong, title)]);
    let place = canvas.text(place, Tone::Faint, " ");
    canvas.text(place, Tone::Faint, &bar.repeat(usize::from(place.width)));
}
