//! BSON documents as relaxed Extended JSON.

use core::fmt::{self, Write};

use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use bson::{
    DateTime,
    raw::{RawArray, RawBsonRef, RawDocument},
};

#[cfg(test)]
mod tests;

/// Displays a BSON document as relaxed Extended JSON, without spaces.
///
/// If the BSON is malformed, the output ends with `<malformed BSON>` at the point where decoding
/// fails.
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

    /// Limits the output to `limit` characters. Longer output is cut off and followed by `...`.
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
            Ok(document) => write!(out, "{}", Document(document)),
            Err(_) => out.write_str(MALFORMED),
        };
        // Reaching the limit is reported as an error, which stops the writers.
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
        let Some((end, _)) = text.char_indices().nth(self.left) else {
            self.left -= text.chars().count();
            return self.out.write_str(text);
        };
        self.left = 0;
        self.cut = true;
        self.out.write_str(text.get(..end).unwrap_or_default())?;
        Err(fmt::Error)
    }
}

const MALFORMED: &str = "<malformed BSON>";

struct Document<'b>(&'b RawDocument);

impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('{')?;
        for (index, element) in self.0.into_iter().enumerate() {
            let Ok((key, value)) = element else {
                return f.write_str(MALFORMED);
            };
            let separator = if index > 0 { "," } else { "" };
            write!(f, "{separator}{}:{}", Text(key.as_str()), Value(value))?;
        }
        f.write_char('}')
    }
}

struct Value<'b>(RawBsonRef<'b>);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RawBsonRef::Double(number) => fmt_double(f, number),
            RawBsonRef::String(text) => Text(text).fmt(f),
            RawBsonRef::Array(array) => fmt_array(f, array),
            RawBsonRef::Document(document) => Document(document).fmt(f),
            RawBsonRef::Boolean(value) => value.fmt(f),
            RawBsonRef::Null => f.write_str("null"),
            RawBsonRef::Int32(number) => number.fmt(f),
            RawBsonRef::Int64(number) => number.fmt(f),
            RawBsonRef::ObjectId(id) => write!(f, r#"{{"$oid":"{id}"}}"#),
            RawBsonRef::DateTime(date) => fmt_date(f, date),
            RawBsonRef::Timestamp(time) => {
                write!(f, r#"{{"$timestamp":{{"t":{},"i":{}}}}}"#, time.time, time.increment)
            }
            RawBsonRef::Binary(binary) => {
                let base64 = Base64Display::new(binary.bytes, &STANDARD);
                let subtype = u8::from(binary.subtype);
                write!(f, r#"{{"$binary":{{"base64":"{base64}","subType":"{subtype:02x}"}}}}"#)
            }
            RawBsonRef::Decimal128(number) => write!(f, r#"{{"$numberDecimal":"{number}"}}"#),
            RawBsonRef::RegularExpression(regex) => {
                let (pattern, options) =
                    (Text(regex.pattern.as_str()), Text(regex.options.as_str()));
                write!(f, r#"{{"$regularExpression":{{"pattern":{pattern},"options":{options}}}}}"#)
            }
            RawBsonRef::JavaScriptCode(code) => write!(f, r#"{{"$code":{}}}"#, Text(code)),
            RawBsonRef::JavaScriptCodeWithScope(code) => {
                write!(f, r#"{{"$code":{},"$scope":{}}}"#, Text(code.code), Document(code.scope))
            }
            RawBsonRef::Symbol(symbol) => write!(f, r#"{{"$symbol":{}}}"#, Text(symbol)),
            RawBsonRef::Undefined => f.write_str(r#"{"$undefined":true}"#),
            RawBsonRef::MinKey => f.write_str(r#"{"$minKey":1}"#),
            RawBsonRef::MaxKey => f.write_str(r#"{"$maxKey":1}"#),
            // The `bson` crate does not expose the fields of this deprecated type.
            RawBsonRef::DbPointer(_) => f.write_str(r#"{"$dbPointer":{}}"#),
        }
    }
}

fn fmt_array(f: &mut fmt::Formatter<'_>, array: &RawArray) -> fmt::Result {
    f.write_char('[')?;
    for (index, element) in array.into_iter().enumerate() {
        let Ok(value) = element else {
            return f.write_str(MALFORMED);
        };
        let separator = if index > 0 { "," } else { "" };
        write!(f, "{separator}{}", Value(value))?;
    }
    f.write_char(']')
}

fn fmt_double(f: &mut fmt::Formatter<'_>, number: f64) -> fmt::Result {
    if number.is_finite() {
        // `Debug` keeps the `.0` that distinguishes a double from an integer.
        write!(f, "{number:?}")
    } else if number.is_nan() {
        f.write_str(r#"{"$numberDouble":"NaN"}"#)
    } else {
        let sign = if number < 0.0 { "-" } else { "" };
        write!(f, r#"{{"$numberDouble":"{sign}Infinity"}}"#)
    }
}

/// Writes a date, as ISO 8601 for the years 1970 to 9999 and as a number for other years (relaxed
/// Extended JSON).
fn fmt_date(f: &mut fmt::Formatter<'_>, date: DateTime) -> fmt::Result {
    let millis = date.timestamp_millis();
    match super::rfc_3339(millis) {
        // Milliseconds have three digits, or none if they are zero.
        Some((text, 0)) => write!(f, r#"{{"$date":"{text}Z"}}"#),
        Some((text, fraction)) => write!(f, r#"{{"$date":"{text}.{fraction:03}Z"}}"#),
        None => write!(f, r#"{{"$date":{{"$numberLong":"{millis}"}}}}"#),
    }
}

/// Displays a string as a quoted and escaped JSON string.
struct Text<'b>(&'b str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_ascii_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
