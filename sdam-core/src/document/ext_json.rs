//! BSON documents as relaxed Extended JSON.

use core::fmt::{self, Write};

use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use bson::{
    DateTime,
    raw::{RawBsonRef, RawDocument},
};

#[cfg(test)]
mod tests;

/// Displays a BSON document as relaxed Extended JSON, without spaces.
///
/// The text of malformed BSON ends where decoding fails, with `<malformed BSON>`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExtendedJson<'b> {
    bytes: &'b [u8],
    limit: usize,
}

impl<'b> ExtendedJson<'b> {
    /// Displays the whole document in `bytes`.
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, limit: usize::MAX }
    }

    /// Limits the text to `limit` characters, followed by `...` if it is longer.
    #[must_use]
    pub const fn limited_to(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl fmt::Display for ExtendedJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Limited { out: f, left: self.limit, cut: false };
        let written = match RawDocument::from_bytes(self.bytes) {
            Ok(document) => write_document(&mut out, document),
            Err(_) => write_malformed(&mut out),
        };
        // The limit is reported as an error, which stops the writers.
        if out.cut {
            return f.write_str("...");
        }
        written
    }
}

impl fmt::Debug for ExtendedJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A writer that fails after `left` characters.
struct Limited<'f, 'a> {
    out: &'f mut fmt::Formatter<'a>,
    left: usize,
    cut: bool,
}

impl Write for Limited<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // A text has at most as many characters as bytes.
        if text.len() <= self.left {
            self.left -= text.chars().count();
            return self.out.write_str(text);
        }
        match text.char_indices().nth(self.left) {
            None => {
                self.left -= text.chars().count();
                self.out.write_str(text)
            }
            Some((end, _)) => {
                self.left = 0;
                self.cut = true;
                self.out.write_str(text.get(..end).unwrap_or_default())?;
                Err(fmt::Error)
            }
        }
    }
}

fn write_malformed(out: &mut impl Write) -> fmt::Result {
    out.write_str("<malformed BSON>")
}

fn write_document(out: &mut impl Write, document: &RawDocument) -> fmt::Result {
    out.write_char('{')?;
    let mut separator = "";
    for element in document {
        let Ok((key, value)) = element else {
            return write_malformed(out);
        };
        out.write_str(separator)?;
        separator = ",";
        write_string(out, key.as_str())?;
        out.write_char(':')?;
        write_value(out, value)?;
    }
    out.write_char('}')
}

fn write_value(out: &mut impl Write, value: RawBsonRef<'_>) -> fmt::Result {
    match value {
        RawBsonRef::Double(number) => write_double(out, number),
        RawBsonRef::String(text) => write_string(out, text),
        RawBsonRef::Array(array) => {
            out.write_char('[')?;
            let mut separator = "";
            for element in array {
                let Ok(value) = element else {
                    return write_malformed(out);
                };
                out.write_str(separator)?;
                separator = ",";
                write_value(out, value)?;
            }
            out.write_char(']')
        }
        RawBsonRef::Document(document) => write_document(out, document),
        RawBsonRef::Boolean(value) => write!(out, "{value}"),
        RawBsonRef::Null => out.write_str("null"),
        RawBsonRef::Int32(number) => write!(out, "{number}"),
        RawBsonRef::Int64(number) => write!(out, "{number}"),
        RawBsonRef::ObjectId(id) => write!(out, r#"{{"$oid":"{id}"}}"#),
        RawBsonRef::DateTime(date) => write_date(out, date),
        RawBsonRef::Timestamp(time) => {
            write!(out, r#"{{"$timestamp":{{"t":{},"i":{}}}}}"#, time.time, time.increment)
        }
        RawBsonRef::Binary(binary) => {
            let base64 = Base64Display::new(binary.bytes, &STANDARD);
            let subtype = u8::from(binary.subtype);
            write!(out, r#"{{"$binary":{{"base64":"{base64}","subType":"{subtype:02x}"}}}}"#)
        }
        other => write_rare(out, other),
    }
}

/// Writes the types that never occur in hello replies.
fn write_rare(out: &mut impl Write, value: RawBsonRef<'_>) -> fmt::Result {
    match value {
        RawBsonRef::Decimal128(number) => write!(out, r#"{{"$numberDecimal":"{number}"}}"#),
        RawBsonRef::RegularExpression(regex) => {
            out.write_str(r#"{"$regularExpression":{"pattern":"#)?;
            write_string(out, regex.pattern.as_str())?;
            out.write_str(r#","options":"#)?;
            write_string(out, regex.options.as_str())?;
            out.write_str("}}")
        }
        RawBsonRef::JavaScriptCode(code) => {
            out.write_str(r#"{"$code":"#)?;
            write_string(out, code)?;
            out.write_char('}')
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            out.write_str(r#"{"$code":"#)?;
            write_string(out, code.code)?;
            out.write_str(r#","$scope":"#)?;
            write_document(out, code.scope)?;
            out.write_char('}')
        }
        RawBsonRef::Symbol(symbol) => {
            out.write_str(r#"{"$symbol":"#)?;
            write_string(out, symbol)?;
            out.write_char('}')
        }
        RawBsonRef::Undefined => out.write_str(r#"{"$undefined":true}"#),
        RawBsonRef::MinKey => out.write_str(r#"{"$minKey":1}"#),
        RawBsonRef::MaxKey => out.write_str(r#"{"$maxKey":1}"#),
        // Only the deprecated DBPointer remains, whose fields the `bson` crate does not expose.
        _ => out.write_str(r#"{"$dbPointer":{}}"#),
    }
}

fn write_double(out: &mut impl Write, number: f64) -> fmt::Result {
    if number.is_finite() {
        // `Debug` keeps the `.0` that distinguishes a double from an integer.
        write!(out, "{number:?}")
    } else if number.is_nan() {
        out.write_str(r#"{"$numberDouble":"NaN"}"#)
    } else {
        let sign = if number < 0.0 { "-" } else { "" };
        write!(out, r#"{{"$numberDouble":"{sign}Infinity"}}"#)
    }
}

/// Writes a date: as ISO 8601 for the years 1970 to 9999, otherwise as a number (relaxed Extended
/// JSON).
fn write_date(out: &mut impl Write, date: DateTime) -> fmt::Result {
    let millis = date.timestamp_millis();
    match super::rfc_3339(millis) {
        // Milliseconds have three digits, or none if they are zero.
        Some((text, 0)) => write!(out, r#"{{"$date":"{text}Z"}}"#),
        Some((text, fraction)) => write!(out, r#"{{"$date":"{text}.{fraction:03}Z"}}"#),
        None => write!(out, r#"{{"$date":{{"$numberLong":"{millis}"}}}}"#),
    }
}

/// Writes `text` as a quoted and escaped JSON string.
fn write_string(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '"' | '\\' => write!(out, "\\{c}")?,
            c if c.is_ascii_control() => write!(out, "\\u{:04x}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    out.write_char('"')
}
