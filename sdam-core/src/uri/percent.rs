//! Percent-encoding (RFC 3986, section 2.1).

use alloc::{borrow::Cow, string::String, vec::Vec};

/// Decodes `text`; the error describes the problem with it.
pub(super) fn decode(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = bytes.next().and_then(hex).zip(bytes.next().and_then(hex));
        let Some((high, low)) = digits else {
            return Err("a `%` is not followed by two hexadecimal digits");
        };
        decoded.push(high << 4 | low);
    }
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| "its percent-encoding does not yield UTF-8")
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}
