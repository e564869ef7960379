//! Formats text of limited width and durations, and chooses the characters of the screen.

use std::{iter, time::Duration};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::super::model::{Column, Probe};
use crate::terminal::{fill, sanitize};

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
