//! BSON documents as relaxed Extended JSON.

use std::fmt::{self, Write};

use bson::{
    raw::{RawBsonRef, RawDocument},
    spec::BinarySubtype,
};

use crate::text::{write_base64, write_string};

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
        Self {
            bytes,
            limit: usize::MAX,
        }
    }

    /// Limits the text to `limit` characters, followed by `...` if there are more.
    #[must_use]
    pub const fn limited_to(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl fmt::Display for ExtendedJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Limited {
            out: f,
            left: self.limit,
            cut: false,
        };
        let written = match RawDocument::from_bytes(self.bytes) {
            Ok(document) => write_document(&mut out, document),
            Err(_) => write_malformed(&mut out),
        };
        // The limit is reported as an error, to stop the writers.
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
        RawBsonRef::DateTime(date) => write_date(out, date.timestamp_millis()),
        RawBsonRef::Timestamp(time) => write!(
            out,
            r#"{{"$timestamp":{{"t":{},"i":{}}}}}"#,
            time.time, time.increment
        ),
        RawBsonRef::Binary(binary) => {
            out.write_str(r#"{"$binary":{"base64":""#)?;
            write_base64(out, binary.bytes)?;
            write!(
                out,
                r#"","subType":"{:02x}"}}}}"#,
                subtype_byte(binary.subtype)
            )
        }
        other => write_rare(out, other),
    }
}

/// Writes the types that no hello reply contains.
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
        // Only the deprecated DBPointer is left, whose fields the `bson` crate does not expose.
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

/// Writes a date: the years 1970 to 9999 as ISO 8601, others as numbers (relaxed Extended JSON).
fn write_date(out: &mut impl Write, millis: i64) -> fmt::Result {
    const MILLIS_PER_DAY: i64 = 86_400_000;
    const FIRST_OF_YEAR_10000: i64 = 253_402_300_800_000;
    if !(0..FIRST_OF_YEAR_10000).contains(&millis) {
        return write!(out, r#"{{"$date":{{"$numberLong":"{millis}"}}}}"#);
    }
    let (year, month, day) = civil_date(millis / MILLIS_PER_DAY);
    let of_day = millis % MILLIS_PER_DAY;
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    write!(
        out,
        r#"{{"$date":"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"#
    )?;
    // Milliseconds: three digits, or none if zero.
    match of_day % 1000 {
        0 => {}
        fraction => write!(out, ".{fraction:03}")?,
    }
    out.write_str(r#"Z"}"#)
}

/// Returns the year, month and day of a day counted from 1970-01-01, not negative.
///
/// Years are counted from March, so that the leap day comes last and the lengths of the months
/// follow one linear rule.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    // 719,468 days lie between 0000-03-01 and the epoch.
    let days = days + 719_468;
    let (era, of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year + era * 400 + next_year, month, day)
}

fn subtype_byte(subtype: BinarySubtype) -> u8 {
    subtype.into()
}
