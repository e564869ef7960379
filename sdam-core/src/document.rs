//! Reads and writes BSON documents.
//!
//! Only this module uses the `bson` crate, so that the crate remains a private dependency. Values
//! are decoded on request; if a value has a different type or cannot be decoded, the result is
//! `None`. [`DocumentWriter`] writes documents, and [`ExtendedJson`] formats them for people.
//!
//! Fields are not read with the iterator of `bson`, because iterating with it would take longer
//! than all other steps of parsing a reply together. The iterator is used only to explain why a
//! document is malformed.

mod ext_json;
#[cfg(test)]
mod tests;
mod writer;

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use core::{fmt, ops::Deref};

use bson::{DateTime, raw::RawDocument, spec::ElementType};

pub use self::{
    ext_json::ExtendedJson,
    writer::{DocumentWriter, MalformedDocument},
};
use crate::ids::{ObjectId, TopologyVersion};

/// The bytes of a BSON document, shared by clones.
///
/// `{:?}` prints the document as shortened relaxed Extended JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedDocument(Arc<[u8]>);

impl Deref for SharedDocument {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for SharedDocument {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

macro_rules! from {
    ($($bytes:ty),*) => {$(
        impl From<$bytes> for SharedDocument {
            fn from(bytes: $bytes) -> Self {
                Self(bytes.into())
            }
        }
    )*};
}

from!(Arc<[u8]>, Vec<u8>, &[u8]);

impl fmt::Debug for SharedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ExtendedJson::new(self).limited_to(DEBUG_LENGTH), f)
    }
}

/// The maximum length of a document in the output of `Debug`, in characters.
const DEBUG_LENGTH: usize = 200;

/// The human-readable reason why bytes are not a BSON document.
#[derive(Debug)]
pub(crate) struct Malformed(pub(crate) Box<str>);

impl Malformed {
    /// Returns the reason why the fields of `document` cannot be read.
    #[cold]
    fn of(document: &[u8]) -> Self {
        let elements = RawDocument::from_bytes(document).map(RawDocument::iter_elements);
        let error = match elements {
            Ok(mut elements) => elements.find_map(Result::err),
            Err(error) => Some(error),
        };
        match error {
            Some(error) => Self::new(&error),
            None => Self("malformed BSON".into()),
        }
    }

    fn new(error: &bson::error::Error) -> Self {
        let reason = match &error.message {
            Some(message) => message.clone(),
            None => error.kind.to_string(),
        };
        let text = match &error.key {
            Some(key) => format!("malformed BSON at `{key}`: {reason}"),
            None => format!("malformed BSON: {reason}"),
        };
        Self(text.into())
    }
}

/// The fields of a document, in order. A malformed field yields an error and ends the iteration.
pub(crate) struct Fields<'a> {
    document: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Returns the fields of the document in `bytes`, which must not contain anything else.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match document_in(bytes) {
            Some(length) if length == bytes.len() => Ok(Self::within(bytes)),
            _ => Err(Malformed::of(bytes)),
        }
    }

    /// Returns the fields of the document in `bytes`, up to the first malformed one.
    pub(crate) fn readable(bytes: &'a [u8]) -> impl Iterator<Item = Field<'a>> {
        Self::of(bytes).into_iter().flatten().map_while(Result::ok)
    }

    /// Returns the fields of a document whose declared length is correct and whose last byte is
    /// zero.
    fn within(document: &'a [u8]) -> Self {
        let end = document.len().saturating_sub(1);
        Self { document, rest: document.get(size_of::<i32>()..end).unwrap_or_default() }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((field, rest)) = Field::split(self.rest) else {
            self.rest = &[];
            return Some(Err(Malformed::of(self.document)));
        };
        self.rest = rest;
        Some(Ok(field))
    }
}

/// Splits `millis`, a time in milliseconds since 1970-01-01, into a date and time in RFC 3339
/// format, truncated to whole seconds, and the remaining milliseconds. Returns `None` outside the
/// years 1970 to 9999.
pub(crate) fn rfc_3339(millis: i64) -> Option<(String, i64)> {
    const FIRST_OF_YEAR_10000: i64 = 253_402_300_800_000;
    if !(0..FIRST_OF_YEAR_10000).contains(&millis) {
        return None;
    }
    let fraction = millis % 1000;
    let whole = DateTime::from_millis(millis - fraction);
    let mut text = whole.try_to_rfc3339_string().ok()?;
    text.pop();
    Some((text, fraction))
}

/// Parses a date and time in RFC 3339 format and returns the milliseconds since 1970-01-01.
pub(crate) fn parse_rfc_3339(text: &str) -> Option<i64> {
    let time = DateTime::parse_rfc3339_str(text).ok()?;
    Some(time.timestamp_millis())
}

/// Returns `document` without the first field that is named `key`; `None` if there is no such
/// field, or if the document is malformed.
pub fn without(document: &[u8], key: &str) -> Option<Vec<u8>> {
    let mut start = size_of::<i32>();
    for element in RawDocument::from_bytes(document).ok()?.iter_elements() {
        let element = element.ok()?;
        // An element consists of the type, the key with its terminator, and the value.
        let end = start + 2 + element.key().as_str().len() + element.size();
        if element.key().as_str() == key {
            let rest = [document.get(..start)?, document.get(end..)?].concat();
            return Some(DocumentWriter::reframed(rest));
        }
        start = end;
    }
    None
}

/// One field of a document, whose value has not been decoded yet.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    /// The key, which is valid UTF-8.
    key: &'a [u8],
    kind: ElementType,
    /// The bytes of the value, whose length is correct for the type.
    value: &'a [u8],
}

impl<'a> Field<'a> {
    pub(crate) fn key(self) -> &'a str {
        core::str::from_utf8(self.key).unwrap_or_default()
    }

    /// Returns the key as bytes, for comparisons.
    pub(crate) fn name(self) -> &'a [u8] {
        self.key
    }

    pub(crate) fn text(self) -> Option<&'a str> {
        core::str::from_utf8(self.string()?).ok()
    }

    /// Returns the value of a string, with replacement characters for invalid UTF-8.
    pub(crate) fn text_lossy(self) -> Option<Box<str>> {
        Some(String::from_utf8_lossy(self.string()?).into())
    }

    fn string(self) -> Option<&'a [u8]> {
        if self.kind == ElementType::String { string_in(self.value) } else { None }
    }

    /// Returns the bytes of the value if it has the type `kind`, whose values are `N` bytes long.
    fn bytes<const N: usize>(self, kind: ElementType) -> Option<[u8; N]> {
        if self.kind == kind { self.value.try_into().ok() } else { None }
    }

    /// Returns the value of a boolean. For a number, returns whether it differs from 0.
    pub(crate) fn truth(self) -> Option<bool> {
        self.integer().map(|number| number != 0)
    }

    /// Returns a whole number of any numeric type except Decimal128; `true` counts as 1 and `false`
    /// as 0.
    pub(crate) fn integer(self) -> Option<i64> {
        /// 2^63, the smallest double above the range of an `i64`.
        const END: f64 = 9_223_372_036_854_775_808.0;
        match self.kind {
            ElementType::Int32 => Some(i32::from_le_bytes(self.value.try_into().ok()?).into()),
            ElementType::Int64 => Some(i64::from_le_bytes(self.value.try_into().ok()?)),
            ElementType::Boolean => match self.value {
                [0] => Some(0),
                [1] => Some(1),
                _ => None,
            },
            ElementType::Double => {
                let number = f64::from_le_bytes(self.value.try_into().ok()?);
                let whole = (-END..END).contains(&number) && number % 1.0 == 0.0;
                whole.then_some(number as i64)
            }
            _ => None,
        }
    }

    /// Returns a whole number, if it is in the range of an `i32`.
    pub(crate) fn int32(self) -> Option<i32> {
        i32::try_from(self.integer()?).ok()
    }

    pub(crate) fn object_id(self) -> Option<ObjectId> {
        self.bytes(ElementType::ObjectId).map(ObjectId::from_bytes)
    }

    /// Returns a date, in milliseconds since the Unix epoch.
    pub(crate) fn date(self) -> Option<i64> {
        self.bytes(ElementType::DateTime).map(i64::from_le_bytes)
    }

    /// Returns a timestamp, whose upper half is in seconds since the Unix epoch.
    pub(crate) fn timestamp(self) -> Option<u64> {
        self.bytes(ElementType::Timestamp).map(u64::from_le_bytes)
    }

    /// Returns the bytes of an embedded document.
    pub(crate) fn document(self) -> Option<&'a [u8]> {
        self.is_document().then_some(self.value)
    }

    pub(crate) fn is_document(self) -> bool {
        self.kind == ElementType::EmbeddedDocument
    }

    /// Returns the fields of an embedded document, or no fields if the value has another type.
    pub(crate) fn fields(self) -> Fields<'a> {
        Fields::within(if self.is_document() { self.value } else { &[] })
    }

    /// Returns the elements of an array, or no elements if the value has another type. The keys of
    /// the elements have no meaning.
    pub(crate) fn elements(self) -> Fields<'a> {
        Fields::within(if self.kind == ElementType::Array { self.value } else { &[] })
    }

    /// Returns a topology version; both of its fields are required.
    pub(crate) fn topology_version(self) -> Result<Option<TopologyVersion>, Malformed> {
        let (mut process_id, mut counter) = (None, None);
        for field in self.fields() {
            let field = field?;
            match field.name() {
                b"processId" => process_id = field.object_id(),
                b"counter" => counter = field.integer(),
                _ => {}
            }
        }
        Ok(process_id
            .zip(counter)
            .map(|(process_id, counter)| TopologyVersion { process_id, counter }))
    }
}

impl<'a> Field<'a> {
    /// Splits off the first element of `elements`. Returns `None` if that element is malformed.
    #[inline]
    fn split(elements: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, rest) = elements.split_first()?;
        let kind = ElementType::from(*kind)?;
        let end = end_of_text(rest)?;
        let (key, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
        let (value, rest) = rest.split_at_checked(length(kind, rest)?)?;
        Some((Self { key, kind, value }, rest))
    }
}

/// Returns the length of the value of type `kind` at the start of `bytes`. The bytes may end before
/// the value does.
#[inline]
fn length(kind: ElementType, bytes: &[u8]) -> Option<usize> {
    Some(match kind {
        ElementType::Null | ElementType::Undefined | ElementType::MinKey | ElementType::MaxKey => 0,
        ElementType::Boolean => 1,
        ElementType::Int32 => 4,
        ElementType::Int64
        | ElementType::Double
        | ElementType::DateTime
        | ElementType::Timestamp => 8,
        ElementType::ObjectId => 12,
        ElementType::Decimal128 => 16,
        ElementType::String | ElementType::Symbol | ElementType::JavaScriptCode => {
            string_in(bytes)?.len() + FRAME
        }
        ElementType::EmbeddedDocument | ElementType::Array => document_in(bytes)?,
        ElementType::DbPointer => string_in(bytes)?.len() + FRAME + 12,
        ElementType::Binary => prefix(bytes)?.checked_add(5)?,
        ElementType::JavaScriptCodeWithScope => prefix(bytes)?,
        ElementType::RegularExpression => {
            let pattern = cstring_in(bytes)?;
            pattern + cstring_in(bytes.get(pattern..)?)?
        }
    })
}

/// The combined size of the length prefix and the terminator of a string or a document.
const FRAME: usize = 5;

/// Returns the string at the start of `bytes`.
#[inline]
fn string_in(bytes: &[u8]) -> Option<&[u8]> {
    let length = prefix(bytes)?;
    let (terminator, text) = bytes.get(4..length.checked_add(4)?)?.split_last()?;
    (*terminator == 0).then_some(text)
}

/// Returns the length of the document at the start of `bytes`.
#[inline]
fn document_in(bytes: &[u8]) -> Option<usize> {
    let length = prefix(bytes)?;
    let last = *bytes.get(length.checked_sub(1)?)?;
    (length >= FRAME && last == 0).then_some(length)
}

/// Returns the length of the zero-terminated string at the start of `bytes`, including the zero
/// byte.
fn cstring_in(bytes: &[u8]) -> Option<usize> {
    Some(end_of_text(bytes)? + 1)
}

/// Returns the position of the first zero byte, if the bytes before it are valid UTF-8.
///
/// Examines eight bytes at a time, because keys make up most of a reply.
#[inline]
fn end_of_text(bytes: &[u8]) -> Option<usize> {
    /// The lowest and the highest bit of each byte of a word.
    const LOW: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = LOW << 7;
    let (mut end, mut high_bits, mut rest) = (0, 0, bytes);
    let end = loop {
        let Some((chunk, after)) = rest.split_first_chunk() else {
            let tail = rest.iter().position(|byte| *byte == 0)?;
            high_bits |= rest.iter().take(tail).fold(0, |bits, byte| bits | u64::from(*byte));
            break end + tail;
        };
        let word = u64::from_le_bytes(*chunk);
        // The lowest bit that is set marks the first zero byte; bits above it may be wrong.
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros == 0 {
            high_bits |= word;
            (end, rest) = (end + chunk.len(), after);
        } else {
            let before = zeros ^ (zeros - 1);
            high_bits |= word & (before >> 8);
            break end + zeros.trailing_zeros() as usize / 8;
        }
    };
    if high_bits & HIGH != 0 {
        core::str::from_utf8(bytes.get(..end)?).ok()?;
    }
    Some(end)
}

/// Reads the length prefix at the start of `bytes`.
#[inline]
fn prefix(bytes: &[u8]) -> Option<usize> {
    usize::try_from(i32::from_le_bytes(*bytes.first_chunk()?)).ok()
}
