//! Writing and reading strings and bytes in JSON.

use std::fmt::{self, Display, Write};

/// Writes `text` in quotes, escaped for JSON.
pub(crate) fn write_string(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_control() || c == '"' || c == '\\') {
        let (plain, from) = rest.split_at(at);
        out.write_str(plain)?;
        let mut chars = from.chars();
        match chars.next() {
            Some('\n') => out.write_str("\\n")?,
            Some('\r') => out.write_str("\\r")?,
            Some('\t') => out.write_str("\\t")?,
            Some(c @ ('"' | '\\')) => {
                out.write_char('\\')?;
                out.write_char(c)?;
            }
            Some(c) => write!(out, "\\u{:04x}", u32::from(c))?,
            None => {}
        }
        rest = chars.as_str();
    }
    out.write_str(rest)?;
    out.write_char('"')
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes `bytes` as padded base64.
pub(crate) fn write_base64(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .chain(&[0, 0])
            .take(3)
            .fold(0, |group, byte| group << 8 | usize::from(*byte));
        for place in 0..4 {
            // One byte needs two digits, two bytes need three.
            let digit = if place <= chunk.len() {
                char::from(BASE64[group >> (18 - 6 * place) & 63])
            } else {
                '='
            };
            out.write_char(digit)?;
        }
    }
    Ok(())
}

/// Decodes padded base64.
#[cfg(feature = "replay")]
pub(crate) fn read_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.as_bytes().chunks(4) {
        let digits = chunk.iter().take_while(|digit| **digit != b'=').count();
        let is_whole = chunk.len() == 4 && digits >= 2;
        let is_padded = chunk.iter().skip(digits).all(|digit| *digit == b'=');
        if !is_whole || !is_padded {
            return None;
        }
        let mut group = 0;
        for digit in chunk {
            let value = match digit {
                b'=' => 0,
                digit => BASE64.iter().position(|own| own == digit)?,
            };
            group = group << 6 | value;
        }
        bytes.extend((0..digits - 1).map(|place| (group >> (16 - 8 * place)) as u8));
    }
    Some(bytes)
}

/// A JSON object that is being written; keys whose value is absent are left out.
pub(crate) struct Object<'o> {
    out: &'o mut String,
    is_empty: bool,
}

impl<'o> Object<'o> {
    /// Writes the object that `fill` fills to the end of `out`.
    pub(crate) fn write(out: &'o mut String, fill: impl FnOnce(&mut Object<'_>)) {
        out.push('{');
        let mut object = Object {
            out,
            is_empty: true,
        };
        fill(&mut object);
        object.out.push('}');
    }

    fn key(&mut self, key: &str) -> &mut String {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        string(self.out, key);
        self.out.push(':');
        self.out
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        string(self.key(key), text);
    }

    pub(crate) fn show(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(key, &value.to_string());
        }
    }

    /// Writes a number, `true` or `false`.
    pub(crate) fn plain(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = write!(self.key(key), "{value}");
        }
    }

    pub(crate) fn texts<T: AsRef<str>>(&mut self, key: &str, texts: impl IntoIterator<Item = T>) {
        let out = self.key(key);
        out.push('[');
        for (index, text) in texts.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            string(out, text.as_ref());
        }
        out.push(']');
    }

    pub(crate) fn base64(&mut self, key: &str, bytes: &[u8]) {
        let out = self.key(key);
        out.push('"');
        let _ = write_base64(out, bytes);
        out.push('"');
    }

    pub(crate) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        Object::write(self.key(key), fill);
    }
}

fn string(out: &mut String, text: &str) {
    let _ = write_string(out, text);
}

#[cfg(all(test, feature = "replay"))]
mod tests {
    use super::*;

    #[test]
    fn base64_round_trips_and_refuses_what_it_never_writes() {
        for length in 0..10_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(97)).collect();
            let mut text = String::new();
            write_base64(&mut text, &bytes).unwrap();
            assert_eq!(read_base64(&text), Some(bytes), "{text}");
        }
        for text in ["a", "ab", "abc", "a===", "ab=c", "ab*=", "abcdab"] {
            assert_eq!(read_base64(text), None, "{text}");
        }
    }
}
