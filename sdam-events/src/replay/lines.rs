use std::io::{BufRead, Read};

use super::{ReplayError, at};

/// The maximum length of a line: an error may contain a reply of 48 MB, which base64 makes longer.
const LIMIT: usize = 128 << 20;

/// The non-empty lines of a recording.
pub(super) struct Lines<R> {
    recording: R,
    number: u64,
}

/// A line without its line break.
pub(super) struct Line {
    /// The number of the line, counted from 1.
    pub(super) number: u64,
    pub(super) text: String,
    /// True if a line break follows. The last line may be incomplete if the program was killed.
    pub(super) is_complete: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(recording: R) -> Self {
        Self { recording, number: 0 }
    }

    /// Reads the next line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Line>, ReplayError> {
        let mut bytes = Vec::new();
        loop {
            self.number += 1;
            bytes.clear();
            let mut line = (&mut self.recording).take(LIMIT as u64);
            if line.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            if bytes.len() == LIMIT {
                let reason = "longer than 128 MiB, which no line of a recording is";
                return Err(at(self.number, reason.into()));
            }
            if !bytes.trim_ascii().is_empty() {
                break;
            }
        }
        let is_complete = bytes.ends_with(b"\n");
        bytes.truncate(bytes.trim_ascii_end().len());
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            // An incomplete line may end inside a character.
            Err(error) if !is_complete => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            Err(error) => return Err(at(self.number, error.to_string().into())),
        };
        Ok(Some(Line { number: self.number, text, is_complete }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_incomplete_line_may_end_within_a_character() {
        let mut lines = Lines::new(&b"a\n\n b\xc3"[..]);
        let first = lines.next().unwrap().unwrap();
        assert_eq!((first.number, &*first.text, first.is_complete), (1, "a", true));
        let last = lines.next().unwrap().unwrap();
        assert_eq!((last.number, &*last.text, last.is_complete), (3, " b\u{fffd}", false));
        assert!(lines.next().unwrap().is_none());
        assert!(Lines::new(&b"b\xc3\n"[..]).next().is_err());
    }
}
