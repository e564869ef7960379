//! Finds where each element of a document ends.

use bson::spec::ElementType;

use super::Field;

impl<'a> Field<'a> {
    /// Splits off the first element of `elements`. Returns `None` if that element is malformed.
    #[inline]
    pub(super) fn split(elements: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (kind, rest) = elements.split_first()?;
        let kind = ElementType::from(*kind)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (key, rest) = rest.split_at_checked(end)?;
        if !key.is_ascii() {
            core::str::from_utf8(key).ok()?;
        }
        let rest = rest.get(1..)?;
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
pub(super) fn string_in(bytes: &[u8]) -> Option<&[u8]> {
    let length = prefix(bytes)?;
    let (terminator, text) = bytes.get(4..length.checked_add(4)?)?.split_last()?;
    (*terminator == 0).then_some(text)
}

/// Returns the length of the document at the start of `bytes`.
#[inline]
pub(super) fn document_in(bytes: &[u8]) -> Option<usize> {
    let length = prefix(bytes)?;
    let last = *bytes.get(length.checked_sub(1)?)?;
    (length >= FRAME && last == 0).then_some(length)
}

/// Returns the length of the zero-terminated string at the start of `bytes`, including the zero
/// byte.
fn cstring_in(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    core::str::from_utf8(bytes.get(..end)?).ok()?;
    Some(end + 1)
}

/// Reads the length prefix at the start of `bytes`.
#[inline]
fn prefix(bytes: &[u8]) -> Option<usize> {
    usize::try_from(i32::from_le_bytes(*bytes.first_chunk()?)).ok()
}
