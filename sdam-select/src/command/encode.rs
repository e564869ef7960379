//! The BSON encoding of a read preference.

use alloc::{string::ToString, vec::Vec};
use core::fmt;

const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BOOLEAN: u8 = 0x08;
const INT32: u8 = 0x10;
const INT64: u8 = 0x12;

/// The error for bytes that are not framed as a BSON document: their length differs from the
/// declared one, or they do not end with a zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MalformedDocument;

impl fmt::Display for MalformedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the command is not framed as a BSON document")
    }
}

impl core::error::Error for MalformedDocument {}

/// The fields of a document under construction.
#[derive(Default)]
pub(super) struct Fields(Vec<u8>);

/// Returns the document with the fields that `build` adds.
pub(super) fn document(build: impl FnOnce(&mut Fields)) -> Vec<u8> {
    let mut fields = Fields::default();
    build(&mut fields);
    framed(&fields.0)
}

impl Fields {
    pub(super) fn string(&mut self, key: &str, value: &str) {
        push_key(&mut self.0, STRING, key);
        push_length(&mut self.0, value.len() + 1);
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    /// Adds the smaller of the two integer types that fits the value.
    pub(super) fn integer(&mut self, key: &str, value: i64) {
        if let Ok(value) = i32::try_from(value) {
            push_key(&mut self.0, INT32, key);
            self.0.extend_from_slice(&value.to_le_bytes());
        } else {
            push_key(&mut self.0, INT64, key);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(super) fn boolean(&mut self, key: &str, value: bool) {
        push_key(&mut self.0, BOOLEAN, key);
        self.0.push(u8::from(value));
    }

    pub(super) fn document(&mut self, key: &str, value: &[u8]) {
        push_document(&mut self.0, key, value);
    }

    /// Adds an array of one document for each of `items`.
    pub(super) fn array<T>(&mut self, key: &str, items: &[T], build: impl Fn(&mut Self, &T)) {
        let array = document(|array| {
            for (index, item) in items.iter().enumerate() {
                let item = document(|fields| build(fields, item));
                push_document(&mut array.0, &index.to_string(), &item);
            }
        });
        push_key(&mut self.0, ARRAY, key);
        self.0.extend_from_slice(&array);
    }
}

/// Adds the field `key` with the document `value` to the fields in `target`.
pub(super) fn push_document(target: &mut Vec<u8>, key: &str, value: &[u8]) {
    push_key(target, DOCUMENT, key);
    target.extend_from_slice(value);
}

fn push_key(target: &mut Vec<u8>, element: u8, key: &str) {
    target.push(element);
    // A zero byte would end the key early and corrupt the rest; no valid preference has one in the
    // name of a tag.
    target.extend(key.bytes().filter(|byte| *byte != 0));
    target.push(0);
}

fn push_length(target: &mut Vec<u8>, length: usize) {
    // No message is near the limit: the maximum is 48 MB.
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    target.extend_from_slice(&length.to_le_bytes());
}

/// Returns the document with these fields.
pub(super) fn framed(fields: &[u8]) -> Vec<u8> {
    let length = fields.len() + 5;
    let mut document = Vec::with_capacity(length);
    push_length(&mut document, length);
    document.extend_from_slice(fields);
    document.push(0);
    document
}

pub(super) fn fields(document: &[u8]) -> Result<&[u8], MalformedDocument> {
    let (length, rest) = document.split_first_chunk().ok_or(MalformedDocument)?;
    let declared = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| MalformedDocument)?;
    match rest.split_last() {
        Some((0, fields)) if declared == document.len() => Ok(fields),
        _ => Err(MalformedDocument),
    }
}

pub(super) fn first_key(fields: &[u8]) -> Option<&[u8]> {
    let (_, key) = fields.split_first()?;
    key.split(|byte| *byte == 0).next()
}
