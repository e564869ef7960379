//! Notes about individual tests. They say why a test is not run or has different results.

use std::fs;

use crate::Result;
use crate::foreign::on_sdam::driver::own_folder;

/// The file with the notes.
const NAME: &str = "tests.txt";

/// A note about all tests whose names contain a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) pattern: String,
    pub(super) reason: String,
}

/// The notes about tests. A line is `left-out PATTERN REASON` or `differs PATTERN REASON`; all
/// other lines are empty or begin with `#`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    pub(super) left_out: Vec<Note>,
    differs: Vec<Note>,
}

impl Notes {
    pub(super) fn read() -> Result<Self> {
        let path = own_folder().join(NAME);
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut notes = Self::default();
        let is_note = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().filter(is_note) {
            let mut words = line.splitn(3, ' ');
            let list = match words.next() {
                Some("left-out") => &mut notes.left_out,
                Some("differs") => &mut notes.differs,
                _ => return Err(format!("{NAME}: no note: {line}").into()),
            };
            let (Some(pattern), Some(reason)) = (words.next(), words.next()) else {
                return Err(format!("{NAME}: a note has no reason: {line}").into());
            };
            list.push(Note { pattern: pattern.to_owned(), reason: reason.to_owned() });
        }
        Ok(notes)
    }

    /// Returns the reason why a test is not run.
    pub(super) fn left_out(&self, name: &str) -> Option<&str> {
        reason(&self.left_out, name)
    }

    /// Returns the reason why a test has a different result with the overlaid driver, or fails with
    /// both drivers.
    pub(super) fn differs(&self, name: &str) -> Option<&str> {
        reason(&self.differs, name)
    }
}

fn reason<'a>(notes: &'a [Note], name: &str) -> Option<&'a str> {
    let note = notes.iter().find(|note| name.contains(&note.pattern));
    note.map(|note| note.reason.as_str())
}

#[cfg(test)]
mod tests {
    use super::Notes;

    #[test]
    fn the_first_matching_note_gives_the_reason() {
        let notes =
            Notes::parse("# a\n\nleft-out atlas needs Atlas\ndiffers rs a reason\n").unwrap();
        assert_eq!(notes.left_out("test::atlas::a"), Some("needs Atlas"));
        assert_eq!(notes.left_out("test::rs"), None);
        assert_eq!(notes.differs("test::rs"), Some("a reason"));
    }

    #[test]
    fn a_note_without_reason_or_kind_is_an_error() {
        assert!(Notes::parse("left-out atlas").is_err());
        assert!(Notes::parse("skip atlas it fails").is_err());
    }
}
