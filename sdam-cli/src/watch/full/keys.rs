//! Decodes keys from the bytes that a terminal sends.
//!
//! crossterm's own reader is not used: after the terminal hangs up, it keeps reading at the end of
//! the input and never returns.

use std::{
    io::{self, Read},
    thread,
};

use futures::channel::mpsc::{self, UnboundedReceiver};

/// A key, possibly pressed together with Ctrl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// A letter pressed together with Ctrl.
    Control(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Reads keys on a separate thread. The stream ends at the end of the input or on an error.
pub(super) fn read(mut input: impl Read + Send + 'static) -> io::Result<UnboundedReceiver<Key>> {
    let (sender, receiver) = mpsc::unbounded();
    let thread = thread::Builder::new().name("keys".to_owned());
    thread.spawn(move || {
        let mut decoder = Decoder::default();
        let mut bytes = [0; 256];
        loop {
            let read = match input.read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            for key in decoder.decode(bytes.get(..read).unwrap_or_default()) {
                if sender.unbounded_send(key).is_err() {
                    return;
                }
            }
        }
    })?;
    Ok(receiver)
}

/// Decodes keys from bytes that arrive in pieces.
#[derive(Debug, Default)]
struct Decoder {
    /// The bytes of an incomplete key.
    pending: Vec<u8>,
}

/// A key and its length in bytes. The key is `None` if the program does not use it.
type Step = (Option<Key>, usize);

impl Decoder {
    /// Returns the keys that are complete after `bytes`.
    ///
    /// A terminal sends a key in one piece, so an escape character at the end of a piece is the
    /// Escape key.
    fn decode(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut rest = self.pending.as_slice();
        while let Some((key, length)) = step(rest) {
            keys.extend(key);
            rest = rest.get(length..).unwrap_or_default();
        }
        self.pending = rest.to_vec();
        keys
    }
}

/// Decodes the first key. Returns `None` if more bytes are needed.
fn step(bytes: &[u8]) -> Option<Step> {
    Some(match bytes {
        [b'\r' | b'\n', ..] => (Some(Key::Enter), 1),
        [b'\t', ..] => (Some(Key::Tab), 1),
        [0x08 | 0x7f, ..] => (Some(Key::Backspace), 1),
        [0x1b] => (Some(Key::Escape), 1),
        [0x1b, b'[', parameters @ ..] => sequence(parameters)?,
        [] | [0x1b, b'O'] => return None,
        [0x1b, b'O', letter, ..] => (letter_key(*letter), 3),
        // This is a key pressed together with Alt, which the program does not use.
        [0x1b, _, ..] => (None, 2),
        [control @ 1..=0x1a, ..] => (Some(Key::Control(char::from(control + b'a' - 1))), 1),
        [0..0x20, ..] => (None, 1),
        [letter, ..] => character(bytes, *letter)?,
    })
}

/// Decodes the bytes after `ESC [`, which are parameters followed by a final byte.
fn sequence(bytes: &[u8]) -> Option<Step> {
    let is_final = |byte: &u8| (0x40..=0x7e).contains(byte);
    let Some(end) = bytes.iter().position(is_final) else {
        // An incomplete sequence that is already longer than any key cannot become a key, so skip
        // it.
        return (bytes.len() >= 32).then_some((None, bytes.len() + 2));
    };
    let (parameters, last) = bytes.split_at(end);
    let key = match (parameters, last.first()?) {
        ([b'1' | b'7'], b'~') => Some(Key::Home),
        ([b'4' | b'8'], b'~') => Some(Key::End),
        ([b'5'], b'~') => Some(Key::PageUp),
        ([b'6'], b'~') => Some(Key::PageDown),
        (_, letter) => letter_key(*letter),
    };
    Some((key, end + 3))
}

fn letter_key(letter: u8) -> Option<Key> {
    Some(match letter {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'M' => Key::Enter,
        _ => return None,
    })
}

/// Decodes a UTF-8 character; an invalid byte is skipped.
fn character(bytes: &[u8], first: u8) -> Option<Step> {
    let length = match first {
        ..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Some((None, 1)),
    };
    Some(match std::str::from_utf8(bytes.get(..length)?) {
        Ok(text) => (text.chars().next().map(Key::Char), length),
        Err(_) => (None, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_from_the_bytes_of_terminals() {
        let check = |bytes: &[u8], expected: &[Key]| {
            assert_eq!(Decoder::default().decode(bytes), expected, "{bytes:?}");
        };
        check(b"q?", &[Key::Char('q'), Key::Char('?')]);
        check("ü中".as_bytes(), &[Key::Char('ü'), Key::Char('中')]);
        check(b"\x03\x0c\x1a", &['c', 'l', 'z'].map(Key::Control));
        check(b"\r\n\t\x7f", &[Key::Enter, Key::Enter, Key::Tab, Key::Backspace]);
        check(b"\x1b", &[Key::Escape]);
        check(b"\x1b[A\x1bOB", &[Key::Up, Key::Down]);
        check(b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]);
        check(b"\x1b[H\x1b[4~", &[Key::Home, Key::End]);
        // Test keys with modifiers, unused keys, mouse clicks and pasted text.
        check(b"\x1b[1;5A", &[Key::Up]);
        check(b"\x1b[15~\x1b[<0;1;2x\x1bxq", &[Key::Char('q')]);
        check(b"\xff\x00\xc3q", &[Key::Char('q')]);
    }

    #[test]
    fn keys_may_be_read_in_pieces() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"\x1b["), []);
        assert_eq!(decoder.decode(b"Bx\xc3"), [Key::Down, Key::Char('x')]);
        assert_eq!(decoder.decode(b"\xbc"), [Key::Char('ü')]);
        // No key consists of this many bytes, so the decoder skips them.
        assert_eq!(decoder.decode(b"\x1b["), []);
        assert_eq!(decoder.decode(&[b'1'; 40]), []);
        assert_eq!(decoder.decode(b"q"), [Key::Char('q')]);
    }
}
