//! Draws text within the bounds of a frame, and frames on a terminal, writing only the changes.
//! Formats text of limited width and durations, and chooses the characters of the screen.

use std::{iter, time::Duration};

use ratatui::{
    backend::{Backend, ClearType},
    buffer::Buffer,
    layout::{Rect, Size},
    style::{Color, Modifier, Style},
};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::super::model::{Column, Probe};
use crate::terminal::{Palette, Tone, fill, sanitize};

/// A frame to draw on, with the character set and the colours of the terminal.
pub(super) struct Canvas<'b> {
    buffer: &'b mut Buffer,
    pub(super) glyphs: Glyphs,
    palette: Palette,
}

impl<'b> Canvas<'b> {
    pub(super) fn new(buffer: &'b mut Buffer, glyphs: Glyphs, palette: Palette) -> Self {
        Self { buffer, glyphs, palette }
    }

    /// Returns the area of the frame.
    pub(super) fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Writes `text` at the beginning of `area`, shortened to fit; returns the area after the text.
    pub(super) fn text(&mut self, area: Rect, tone: Tone, text: &str) -> Rect {
        let area = area.intersection(self.buffer.area);
        if area.is_empty() {
            return Rect::default();
        }
        let text = self.glyphs.fit(text, usize::from(area.width));
        let style = self.style(tone);
        let room = usize::from(area.width);
        let (end, _) = self.buffer.set_stringn(area.x, area.y, &text, room, style);
        let taken = end.saturating_sub(area.x).min(area.width);
        Rect { x: area.x + taken, width: area.width - taken, ..area }
    }

    /// Writes strings one after another; returns the area after them.
    pub(super) fn texts(&mut self, area: Rect, texts: &[(Tone, &str)]) -> Rect {
        let write = |rest, (tone, text): &(Tone, &str)| self.text(rest, *tone, text);
        texts.iter().fold(area, write)
    }

    /// Writes `text` at the end of `area`; returns the area that the text covers.
    pub(super) fn text_right(&mut self, area: Rect, tone: Tone, text: &str) -> Rect {
        let taken = u16::try_from(width(text)).unwrap_or(u16::MAX).min(area.width);
        let place = Rect { x: area.right() - taken, width: taken, ..area };
        self.text(place, tone, text);
        place
    }

    /// Returns the style for a tone: a named terminal colour on the terminal's own background.
    fn style(&self, tone: Tone) -> Style {
        let style = Style::new();
        if self.palette == Palette::Plain {
            return style;
        }
        match tone {
            Tone::Normal => style,
            Tone::Strong => style.add_modifier(Modifier::BOLD),
            Tone::Faint => style.add_modifier(Modifier::DIM),
            Tone::Good => style.fg(Color::Green),
            Tone::Fair => style.fg(Color::Cyan),
            Tone::Doubtful => style.fg(Color::Yellow),
            Tone::Bad => style.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// Returns line `number` of `area`, or an empty area if there is no such line.
pub(super) fn line(area: Rect, number: u16) -> Rect {
    if number >= area.height {
        return Rect::default();
    }
    Rect { y: area.y + number, height: 1, ..area }
}

/// Writes frames to a terminal.
pub(super) struct Painter<B> {
    pub(super) backend: B,
    /// The contents of the terminal; `None` if they are unknown, as before the first frame.
    shown: Option<Buffer>,
}

impl<B: Backend> Painter<B> {
    pub(super) fn new(backend: B) -> Self {
        Self { backend, shown: None }
    }

    /// Makes the next frame redraw everything.
    pub(super) fn forget(&mut self) {
        self.shown = None;
    }

    /// Draws a frame; `render` fills it and returns the area of its clock. Returns whether anything
    /// was written.
    ///
    /// Writes nothing if only the clock has changed, or while the terminal's size is zero, which
    /// may happen temporarily.
    pub(super) fn paint(
        &mut self,
        render: impl FnOnce(&mut Buffer) -> Rect,
    ) -> Result<bool, B::Error> {
        let Size { width, height } = self.backend.size()?;
        let area = Rect::new(0, 0, width, height);
        if area.is_empty() {
            return Ok(false);
        }
        let mut next = Buffer::empty(area);
        let clock = render(&mut next);
        let shown = match self.shown.take() {
            Some(shown) if shown.area == area => shown,
            _ => {
                self.backend.clear_region(ClearType::All)?;
                Buffer::empty(area)
            }
        };
        let changes = shown.diff(&next);
        if changes.iter().all(|(x, y, _)| clock.contains((*x, *y).into())) {
            self.shown = Some(shown);
            return Ok(false);
        }
        self.backend.draw(changes.into_iter())?;
        self.backend.flush()?;
        self.shown = Some(next);
        Ok(true)
    }
}

/// The special characters of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glyphs {
    Ascii,
    Unicode,
}

impl Glyphs {
    /// Chooses the characters by locale: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is not
    /// empty.
    pub(super) fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut names = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
        let locale = names.find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            Self::Unicode
        } else {
            Self::Ascii
        }
    }

    /// Returns `ascii` if the screen uses only ASCII characters, and `unicode` otherwise.
    pub(super) fn pick(self, ascii: &'static str, unicode: &'static str) -> &'static str {
        match self {
            Self::Ascii => ascii,
            Self::Unicode => unicode,
        }
    }

    /// Returns the character that marks omitted text.
    pub(super) fn ellipsis(self) -> &'static str {
        self.pick("~", "…")
    }

    /// Returns the character for a column of a sparkline.
    pub(super) fn column(self, column: Column) -> &'static str {
        match column {
            Column::Empty => " ",
            Column::Checked(probe) | Column::Held(probe) => match probe {
                Probe::Lost => self.pick("x", "×"),
                Probe::Answered(rtt) => self.level(rtt),
            },
        }
    }

    /// Returns a bar whose height represents a round-trip time. The scale is the same for all
    /// servers.
    fn level(self, rtt: Duration) -> &'static str {
        const LEVELS: [(u64, &str, &str); 8] = [
            (1, ".", "▁"),
            (2, ".", "▂"),
            (5, "-", "▃"),
            (10, "-", "▄"),
            (20, "=", "▅"),
            (50, "+", "▆"),
            (100, "*", "▇"),
            (u64::MAX, "#", "█"),
        ];
        let level = LEVELS.iter().find(|(limit, ..)| rtt <= Duration::from_millis(*limit));
        level.map_or("", |(_, ascii, unicode)| self.pick(ascii, unicode))
    }

    /// Shortens `text` to `width` columns, and replaces control characters.
    pub(super) fn fit(self, text: &str, width: usize) -> String {
        let text = sanitize(text);
        if text.width() <= width {
            return text;
        }
        match width.checked_sub(1) {
            None => String::new(),
            Some(room) => format!("{}{}", begin(&text, room), self.ellipsis()),
        }
    }

    /// Shortens `text` to `width` columns by omitting its middle, because addresses differ at both
    /// ends.
    pub(super) fn fit_middle(self, text: &str, width: usize) -> String {
        let text = sanitize(text);
        let Some(room) = width.checked_sub(1) else {
            return String::new();
        };
        if text.width() <= width {
            return text;
        }
        let reversed: String = text.chars().rev().collect();
        let end: String = begin(&reversed, room / 2).chars().rev().collect();
        let begin = begin(&text, room - room / 2);
        format!("{begin}{}{end}", self.ellipsis())
    }
}

/// Returns the beginning of `text`, up to `width` columns.
fn begin(text: &str, width: usize) -> &str {
    let mut taken = 0;
    for (index, letter) in text.char_indices() {
        taken += letter.width().unwrap_or_default();
        if taken > width {
            return text.get(..index).unwrap_or_default();
        }
    }
    text
}

/// Returns the width of `text` in columns; `text` must contain no control characters.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Wraps `text` into lines of `width` columns; longer words are split.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let text = sanitize(text);
    let pieces = text.split_whitespace().flat_map(|word| {
        let mut rest = word;
        iter::from_fn(move || {
            let piece = begin(rest, width.max(2));
            rest = rest.get(piece.len()..).unwrap_or_default();
            (!piece.is_empty()).then_some(piece)
        })
    });
    fill(pieces, width, UnicodeWidthStr::width)
}

/// Formats an age in at most 6 columns: `7s`, `3m05s`, `2h04m`, `5d01h`.
pub(super) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ if days < 100 => format!("{days}d{:02}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// Formats milliseconds without the unit, in at most 5 columns: `0.21`, `2.1`, `19.8`, `204`.
pub(super) fn millis(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1e3;
    match millis {
        ..0.995 => format!("{millis:.2}"),
        ..99.95 => format!("{millis:.1}"),
        ..99_999.5 => format!("{millis:.0}"),
        _ => ">100s".to_owned(),
    }
}

/// Formats the time of a running stopwatch as minutes, seconds and tenths.
pub(super) fn running(duration: Duration) -> String {
    let (seconds, tenths) = (duration.as_secs(), duration.subsec_millis() / 100);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match hours {
        0 => format!("{minutes:02}:{:02}.{tenths}", seconds % 60),
        _ => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
    }
}

/// Formats a number of bytes.
pub(super) fn bytes(count: u64) -> String {
    match count {
        ..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{} kB", count / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", count / 1_000_000),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_decides_about_characters_beyond_ascii() {
        let check = |variables: &[(&str, &str)], expected| {
            let value = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(Glyphs::detect(value), expected, "{variables:?}");
        };
        check(&[("LANG", "en_US.UTF-8")], Glyphs::Unicode);
        check(&[("LC_CTYPE", "C.utf8"), ("LANG", "C")], Glyphs::Unicode);
        check(&[("LC_ALL", ""), ("LANG", "C.UTF-8")], Glyphs::Unicode);
        check(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")], Glyphs::Ascii);
        check(&[], Glyphs::Ascii);
    }

    #[test]
    fn texts_are_shortened_to_columns() {
        let check = |text: &str, width, end: &str, middle: &str| {
            assert_eq!(Glyphs::Ascii.fit(text, width), end, "{text}");
            assert_eq!(Glyphs::Ascii.fit_middle(text, width), middle, "{text}");
        };
        check("short", 5, "short", "short");
        check("longer", 5, "long~", "lo~er");
        check("longer", 0, "", "");
        check("longer", 1, "~", "~");
        // Wide characters take two columns.
        check("数据库", 6, "数据库", "数据库");
        check("数据库", 5, "数据~", "数~库");
        check("数据库", 4, "数~", "数~");
        check("a\u{1b}[2Jb", 9, "a\u{fffd}[2Jb", "a\u{fffd}[2Jb");
    }

    #[test]
    fn wrapped_lines_hold_whole_words_if_they_fit() {
        let check = |text: &str, expected: &[&str]| assert_eq!(wrap(text, 7), expected);
        check("", &[]);
        check("one two three", &["one two", "three"]);
        check("a muchtoolong word", &["a", "muchtoo", "long", "word"]);
        check("数据库数据", &["数据库", "数据"]);
    }

    #[test]
    fn durations_fit_into_their_columns() {
        let check = |seconds: f64, ago: &str, rtt: &str, stopwatch: &str| {
            let duration = Duration::from_secs_f64(seconds);
            assert_eq!(age(duration), ago);
            assert_eq!(millis(duration), rtt);
            assert_eq!(running(duration), stopwatch);
        };
        check(0.000_214, "0s", "0.21", "00:00.0");
        check(0.0198, "0s", "19.8", "00:00.0");
        check(0.25, "0s", "250", "00:00.2");
        check(4.76, "4s", "4760", "00:04.7");
        check(185.0, "3m05s", ">100s", "03:05.0");
        check(7_440.0, "2h04m", ">100s", "2:04:00");
        check(435_600.0, "5d01h", ">100s", "121:00:00");
    }

    #[test]
    fn sizes_have_a_unit() {
        let check = |count, expected: &str| assert_eq!(bytes(count), expected);
        check(12, "12 B");
        check(14_200, "14 kB");
        check(14_200_000, "14 MB");
        check(1_500_000_000, "1.5 GB");
    }
}
