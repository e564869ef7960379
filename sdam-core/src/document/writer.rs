use alloc::{string::ToString, vec::Vec};

use bson::spec::{BinarySubtype, ElementType};

use super::Fields;
use crate::ids::ObjectId;

/// Writes a BSON document field by field, in the order of the calls.
///
/// A field whose value is `None` is omitted.
///
/// ```
/// use sdam_core::document::DocumentWriter;
///
/// let mut command = DocumentWriter::new();
/// command.int32("ping", 1);
/// command.boolean("apiStrict", None);
/// command.text("$db", "admin");
/// assert_eq!(command.finish().len(), 30);
/// ```
#[derive(Clone, Debug)]
pub struct DocumentWriter(Vec<u8>);

impl DocumentWriter {
    /// Creates an empty document.
    pub fn new() -> Self {
        Self(Vec::from([0; 4]))
    }

    /// Creates a document that begins with the fields of `document`.
    ///
    /// # Errors
    ///
    /// If `document` is not framed as a BSON document; its fields are not checked.
    pub fn extending(document: &[u8]) -> Result<Self, MalformedDocument> {
        let mut extended = Self::new();
        extended.fields(document)?;
        Ok(extended)
    }

    /// Returns the document `bytes` with its length corrected.
    pub(super) fn reframed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.pop();
        Self(bytes).finish()
    }

    /// Completes the document and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.close(0);
        self.0
    }

    /// Writes a 32-bit integer.
    pub fn int32(&mut self, key: &str, value: impl Into<Option<i32>>) {
        self.scalar(ElementType::Int32, key, value.into().map(i32::to_le_bytes));
    }

    /// Writes a 64-bit integer.
    pub fn int64(&mut self, key: &str, value: impl Into<Option<i64>>) {
        self.scalar(ElementType::Int64, key, value.into().map(i64::to_le_bytes));
    }

    /// Writes a boolean.
    pub fn boolean(&mut self, key: &str, value: impl Into<Option<bool>>) {
        let value = value.into().map(|value| [value.into()]);
        self.scalar(ElementType::Boolean, key, value);
    }

    /// Writes a string.
    pub fn text<'t>(&mut self, key: &str, value: impl Into<Option<&'t str>>) {
        if let Some(value) = value.into() {
            self.key(ElementType::String, key);
            self.length(value.len() + 1);
            self.0.extend_from_slice(value.as_bytes());
            self.0.push(0);
        }
    }

    /// Writes an ObjectId.
    pub fn object_id(&mut self, key: &str, value: impl Into<Option<ObjectId>>) {
        let value = value.into().map(ObjectId::bytes);
        self.scalar(ElementType::ObjectId, key, value);
    }

    /// Writes bytes of the generic binary subtype.
    pub fn binary<'b>(&mut self, key: &str, value: impl Into<Option<&'b [u8]>>) {
        if let Some(value) = value.into() {
            self.bytes(key, BinarySubtype::Generic, value);
        }
    }

    /// Writes a UUID, such as the id of a session.
    pub(crate) fn uuid(&mut self, key: &str, value: [u8; 16]) {
        self.bytes(key, BinarySubtype::Uuid, &value);
    }

    /// Writes an embedded document with the fields that `write` adds.
    pub fn document(&mut self, key: &str, write: impl FnOnce(&mut Self)) {
        self.key(ElementType::EmbeddedDocument, key);
        self.nested(write);
    }

    /// Writes an embedded document with the fields that `write` adds. If `write` adds none, the
    /// document is omitted.
    pub fn document_unless_empty(&mut self, key: &str, write: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        self.key(ElementType::EmbeddedDocument, key);
        let start = self.0.len();
        self.nested(write);
        if self.0.len() == start + EMPTY {
            self.0.truncate(before);
        }
    }

    /// Writes an already encoded document.
    ///
    /// # Errors
    ///
    /// If `document` is not framed as a BSON document. The document is omitted in that case,
    /// because it would make all later fields unreadable.
    pub fn encoded_document(
        &mut self,
        key: &str,
        document: &[u8],
    ) -> Result<(), MalformedDocument> {
        check_frame(document)?;
        self.key(ElementType::EmbeddedDocument, key);
        self.0.extend_from_slice(document);
        Ok(())
    }

    /// Writes the fields of an encoded document.
    ///
    /// # Errors
    ///
    /// If `document` is not framed as a BSON document. Nothing is written in that case.
    pub fn fields(&mut self, document: &[u8]) -> Result<(), MalformedDocument> {
        check_frame(document)?;
        let fields = document.get(4..document.len() - 1).unwrap_or_default();
        self.0.extend_from_slice(fields);
        Ok(())
    }

    /// Writes an array with one document for each of `items`; `write` adds the fields of each
    /// document.
    pub fn documents<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.key(ElementType::Array, key);
        self.nested(|array| {
            for (index, item) in items.into_iter().enumerate() {
                array.document(&index.to_string(), |document| write(document, item));
            }
        });
    }

    fn scalar<const N: usize>(&mut self, of: ElementType, key: &str, value: Option<[u8; N]>) {
        if let Some(value) = value {
            self.key(of, key);
            self.0.extend_from_slice(&value);
        }
    }

    fn bytes(&mut self, key: &str, subtype: BinarySubtype, value: &[u8]) {
        self.key(ElementType::Binary, key);
        self.length(value.len());
        self.0.push(subtype.into());
        self.0.extend_from_slice(value);
    }

    /// Writes the type and the name of a field.
    fn key(&mut self, element_type: ElementType, key: &str) {
        self.0.push(element_type as u8);
        // A zero byte would end the key early and corrupt the rest; no valid key contains one.
        for part in key.split('\0') {
            self.0.extend_from_slice(part.as_bytes());
        }
        self.0.push(0);
    }

    fn length(&mut self, length: usize) {
        // No message comes near this limit: the maximum is 48 MB.
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        self.0.extend_from_slice(&length.to_le_bytes());
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.length(0);
        write(self);
        self.close(start);
    }

    /// Ends the document that begins at `start`, and sets its length.
    fn close(&mut self, start: usize) {
        self.0.push(0);
        let length = i32::try_from(self.0.len() - start).unwrap_or(i32::MAX);
        let field = self.0.iter_mut().skip(start);
        for (byte, digit) in field.zip(length.to_le_bytes()) {
            *byte = digit;
        }
    }
}

impl Default for DocumentWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// The length of a document without fields.
const EMPTY: usize = 5;

fn check_frame(document: &[u8]) -> Result<(), MalformedDocument> {
    Fields::of(document).map(drop).map_err(|_| MalformedDocument)
}

/// The error for bytes that are not framed as a BSON document: their length differs from the
/// declared one, or they do not end with a zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("the bytes are not framed as a BSON document")]
pub struct MalformedDocument;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bson::{Document, doc, raw::RawDocument};

    use super::*;

    fn decoded(writer: DocumentWriter) -> Document {
        let bytes = writer.finish();
        let document = RawDocument::from_bytes(&bytes).unwrap();
        Document::try_from(document).unwrap()
    }

    fn filled() -> DocumentWriter {
        let mut writer = DocumentWriter::new();
        writer.int32("int32", -2);
        writer.int64("int64", i64::MIN);
        writer.boolean("boolean", true);
        writer.text("text", "a\0é");
        writer.object_id("id", ObjectId::from_bytes([3; 12]));
        writer.uuid("uuid", [4; 16]);
        writer.binary("binary", &[1, 0, 2][..]);
        writer.document("empty", |_| {});
        writer.document("outer", |outer| {
            outer.document_unless_empty("inner", |inner| inner.text("x", ""));
            outer.int32("after", 1);
        });
        writer.documents("list", [1, 2], |item, number| item.int32("n", number));
        let encoded = DocumentWriter::new().finish();
        writer.encoded_document("encoded", &encoded).unwrap();
        writer
    }

    #[test]
    fn every_field_is_decoded_as_it_was_written() {
        let id = bson::oid::ObjectId::from_bytes([3; 12]);
        let binary = bson::Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 0, 2] };
        let uuid = bson::Uuid::from_bytes([4; 16]);
        let expected = doc! {
            "int32": -2, "int64": i64::MIN, "boolean": true, "text": "a\0é", "id": id,
            "uuid": uuid, "binary": binary, "empty": {},
            "outer": { "inner": { "x": "" }, "after": 1 }, "list": [{ "n": 1 }, { "n": 2 }],
            "encoded": {},
        };
        assert_eq!(decoded(filled()), expected);
    }

    #[test]
    fn absent_values_and_malformed_documents_are_left_out() {
        let mut writer = DocumentWriter::default();
        writer.int32("int32", None);
        writer.int64("int64", None);
        writer.boolean("boolean", None);
        writer.text("text", None);
        writer.object_id("id", None);
        writer.binary("binary", None);
        writer.document_unless_empty("empty", |inner| {
            inner.document_unless_empty("inner", |_| {});
        });
        for malformed in [&[5, 0, 0, 0][..], &[5, 0, 0, 0, 0, 0]] {
            let written = writer.encoded_document("encoded", malformed);
            assert_eq!(written, Err(MalformedDocument));
        }
        assert_eq!(decoded(writer), doc! {});
    }

    #[test]
    fn a_zero_byte_in_a_key_is_left_out() {
        let mut writer = DocumentWriter::new();
        writer.int32("a\0b\0", 1);
        assert_eq!(decoded(writer), doc! { "ab": 1 });
    }

    #[test]
    fn fields_are_added_after_those_of_an_encoded_document() {
        let mut writer = DocumentWriter::extending(&filled().finish()).unwrap();
        writer.int32("last", 1);
        let mut expected = decoded(filled());
        expected.insert("last", 1);
        assert_eq!(decoded(writer), expected);
        for malformed in [&[][..], &[6, 0, 0, 0, 0], &[5, 0, 0, 0, 1]] {
            let error = DocumentWriter::extending(malformed).unwrap_err();
            assert_eq!(error, MalformedDocument);
        }
    }
}
