//! Terminal output: colours, and lines of 80 columns.

use std::{
    ffi::OsStr,
    fmt::{self, Write},
};

use strum::VariantArray as _;

/// The maximum number of columns in a line. It is exceeded only by a line that consists of a single
/// longer word.
pub const WIDTH: usize = 80;

/// The colours to use in output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// No escape sequences.
    Plain,
    /// The standard ANSI colours.
    Ansi,
}

/// The meaning of a piece of text, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum Tone {
    /// Text without emphasis.
    Normal,
    /// Emphasized text.
    Strong,
    /// Information that has not changed.
    Faint,
    /// A good state.
    Good,
    /// A state that permits only limited use.
    Fair,
    /// A transient state.
    Doubtful,
    /// An error.
    Bad,
}

impl Palette {
    /// Chooses colours for a terminal, unless the user has disabled them.
    ///
    /// `no_color` is the value of the environment variable `NO_COLOR`, which disables colours if it
    /// is not empty. `term` is the value of `TERM`.
    pub fn detect(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Self {
        let unwanted = no_color.is_some_and(|value| !value.is_empty());
        if is_terminal && !unwanted && term.is_none_or(|term| term != "dumb") {
            Self::Ansi
        } else {
            Self::Plain
        }
    }

    /// Returns `text` in the colour of `tone`, with control characters replaced.
    pub fn paint(self, tone: Tone, text: impl fmt::Display) -> String {
        let text = sanitize(&text.to_string());
        match tone {
            _ if self == Self::Plain => text,
            Tone::Normal => text,
            _ => format!("{}{text}{}", tone.sequence(), Tone::Normal.sequence()),
        }
    }

    /// Replaces the same characters as [`sanitize`] in `text`, but keeps line breaks and the
    /// colours of this palette.
    pub(crate) fn readable(self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\x1b').filter(|_| self == Self::Ansi) {
            let (before, sequence) = rest.split_at(at);
            clean += &sanitize_lines(before);
            let mut own = Tone::VARIANTS.iter().map(|tone| tone.sequence());
            let own = own.find(|own| sequence.starts_with(own));
            clean += own.unwrap_or("\u{fffd}");
            rest = &sequence[own.map_or(1, str::len)..];
        }
        clean + &sanitize_lines(rest)
    }
}

impl Tone {
    /// Returns the escape sequence that begins text of this tone.
    fn sequence(self) -> &'static str {
        match self {
            Self::Normal => "\x1b[0m",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Fair => "\x1b[36m",
            Self::Doubtful => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// Replaces control characters, so that strings from servers cannot control the terminal. Also
/// replaces characters that change the direction of text, because they can make one address look
/// like another.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// Replaces the same characters as [`sanitize`] in each line, but keeps line breaks.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.chars().map(|c| if is_harmful(c) && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Formats a JSON value in one line, with escapes for the characters that [`sanitize`] replaces.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        if is_harmful(c) {
            // Such characters occur only inside JSON strings, where escapes are valid. Writing to a
            // `String` cannot fail.
            let _ = write!(line, "\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Wraps `text` between words into lines that are `indent` columns shorter than [`WIDTH`].
pub fn wrap(text: &str, indent: usize) -> Vec<String> {
    wrap_to(text, WIDTH.saturating_sub(indent).max(1))
}

/// Wraps `text` into lines of at most `room` columns. Longer words are not split.
pub(crate) fn wrap_to(text: &str, room: usize) -> Vec<String> {
    fill(text.split_whitespace(), room, columns)
}

/// Joins words into lines of at most `room` columns, as counted by `columns`. Longer words are not
/// split.
pub(crate) fn fill<'w>(
    words: impl Iterator<Item = &'w str>,
    room: usize,
    columns: impl Fn(&str) -> usize,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= room => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns the number of columns that `text` occupies.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_respect_no_color() {
        let check = |is_terminal, no_color: Option<&str>, term: Option<&str>, expected| {
            let palette =
                Palette::detect(is_terminal, no_color.map(OsStr::new), term.map(OsStr::new));
            assert_eq!(palette, expected, "{is_terminal} {no_color:?} {term:?}");
        };
        check(true, None, Some("xterm"), Palette::Ansi);
        check(true, Some(""), None, Palette::Ansi);
        check(true, Some("1"), Some("xterm"), Palette::Plain);
        check(true, None, Some("dumb"), Palette::Plain);
        check(false, None, Some("xterm"), Palette::Plain);
    }

    #[test]
    fn control_characters_of_servers_are_replaced() {
        let text = Palette::Plain.paint(Tone::Bad, "a\x1b[2Jb\nc");
        assert_eq!(text, "a\u{fffd}[2Jb\u{fffd}c");
        let text = Palette::Ansi.paint(Tone::Bad, "a");
        assert_eq!(text, "\x1b[31ma\x1b[0m");
        assert_eq!(sanitize_lines("a\0\u{202e}\nb\u{9b}"), "a\u{fffd}\u{fffd}\nb\u{fffd}");
        let painted = Palette::Ansi.paint(Tone::Bad, "a") + "\n\x1b]0;title\x07";
        let clean = "\x1b[31ma\x1b[0m\n\u{fffd}]0;title\u{fffd}";
        assert_eq!(Palette::Ansi.readable(&painted), clean);
        assert_eq!(Palette::Plain.readable(clean), clean.replace('\x1b', "\u{fffd}"));
        let value = serde_json::json!({ "a": "\u{9b}\u{202e}\n\u{7f}é" });
        let line = json_line(&value);
        assert_eq!(line, r#"{"a":"\u009b\u202e\n\u007fé"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(wrap(text, WIDTH - 7), expected, "{text}");
        };
        check("", &[]);
        check("one two", &["one two"]);
        check("one two three", &["one two", "three"]);
        check("four-teen ab", &["four-teen", "ab"]);
    }
}
