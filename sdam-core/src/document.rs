//! Reads and writes BSON documents.
//!
//! Documents are read with the `bson` crate, which only this module uses, so that it remains a
//! private dependency. Values are decoded on request; a value of a different type, or one that
//! cannot be decoded, is `None`. [`DocumentWriter`] writes documents, and [`ExtendedJson`] formats
//! them for people.

mod ext_json;
mod shared;
mod writer;

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    vec::Vec,
};

use bson::{
    raw::{RawBson, RawBsonRef, RawDocument, RawElement, RawIter},
    spec::ElementType,
};

pub use ext_json::ExtendedJson;
pub use shared::SharedDocument;
pub use writer::{DocumentWriter, MalformedDocument};

use crate::ids::{ObjectId, TopologyVersion};

/// The human-readable reason why bytes are not a BSON document.
#[derive(Debug)]
pub(crate) struct Malformed(Box<str>);

impl Malformed {
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

    pub(crate) fn into_message(self) -> Box<str> {
        self.0
    }
}

/// The fields of a document.
pub(crate) struct Fields<'a>(RawIter<'a>);

impl<'a> Fields<'a> {
    /// Returns the fields of the document that exactly fills `bytes`.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, Malformed> {
        RawDocument::from_bytes(bytes)
            .map(|document| Self(document.iter_elements()))
            .map_err(|error| Malformed::new(&error))
    }

    /// Calls `visit` with every field, in order, up to the first malformed one.
    ///
    /// Fields are passed by reference: an iterator would move each one through two layers of
    /// results, which takes as long as finding it.
    #[inline]
    pub(crate) fn each(
        self,
        mut visit: impl FnMut(Field<'_, 'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        for element in self.0 {
            match &element {
                Ok(element) => visit(Field(element))?,
                Err(error) => return Err(Malformed::new(error)),
            }
        }
        Ok(())
    }
}

/// Returns the document without its first field `key`; `None` if there is no such field, or if the
/// document is malformed.
pub fn without(document: &[u8], key: &str) -> Option<Vec<u8>> {
    let mut start = size_of::<i32>();
    for element in RawDocument::from_bytes(document).ok()?.iter_elements() {
        let element = element.ok()?;
        // The type, the key with its terminator, and the value.
        let end = start + 2 + element.key().as_str().len() + element.size();
        if element.key().as_str() == key {
            let rest = [document.get(..start)?, document.get(end..)?].concat();
            return Some(DocumentWriter::reframed(rest));
        }
        start = end;
    }
    None
}

/// One field of a document, undecoded.
#[derive(Clone, Copy)]
pub(crate) struct Field<'e, 'a>(&'e RawElement<'a>);

/// A field stored for decoding later.
pub(crate) struct KeptField<'a>(RawElement<'a>);

impl<'a> KeptField<'a> {
    pub(crate) fn field(&self) -> Field<'_, 'a> {
        Field(&self.0)
    }
}

impl<'a> Field<'_, 'a> {
    pub(crate) fn key(self) -> &'a str {
        self.0.key().as_str()
    }

    /// Stores the field for decoding later.
    pub(crate) fn keep(self) -> KeptField<'a> {
        KeptField(self.0.clone())
    }

    fn value(self) -> Option<RawBsonRef<'a>> {
        self.0.value().ok()
    }

    pub(crate) fn text(self) -> Option<&'a str> {
        match self.value()? {
            RawBsonRef::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text of a string, with replacement characters for invalid UTF-8.
    pub(crate) fn text_lossy(self) -> Option<String> {
        if self.0.element_type() != ElementType::String {
            return None;
        }
        match self.0.value_utf8_lossy().ok()? {
            RawBson::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a boolean; for a number, whether it is not 0.
    pub(crate) fn truth(self) -> Option<bool> {
        self.integer().map(|number| number != 0)
    }

    /// Returns a whole number of any numeric type; `true` counts as 1 and `false` as 0.
    pub(crate) fn integer(self) -> Option<i64> {
        /// 2^63, the first double beyond the range.
        const END: f64 = 9_223_372_036_854_775_808.0;
        match self.value()? {
            RawBsonRef::Int32(number) => Some(number.into()),
            RawBsonRef::Int64(number) => Some(number),
            RawBsonRef::Boolean(truth) => Some(truth.into()),
            RawBsonRef::Double(number) => {
                let whole = (-END..END).contains(&number) && number % 1.0 == 0.0;
                whole.then_some(number as i64)
            }
            _ => None,
        }
    }

    /// Returns a whole number in the range of an `i32`.
    pub(crate) fn int32(self) -> Option<i32> {
        i32::try_from(self.integer()?).ok()
    }

    pub(crate) fn object_id(self) -> Option<ObjectId> {
        match self.value()? {
            RawBsonRef::ObjectId(id) => Some(ObjectId::from_bytes(id.bytes())),
            _ => None,
        }
    }

    /// Returns a date, in milliseconds since the Unix epoch.
    pub(crate) fn date(self) -> Option<i64> {
        match self.value()? {
            RawBsonRef::DateTime(date) => Some(date.timestamp_millis()),
            _ => None,
        }
    }

    /// Returns the fields of an embedded document.
    pub(crate) fn fields(self) -> Option<Fields<'a>> {
        match self.value()? {
            RawBsonRef::Document(document) => Some(Fields(document.iter_elements())),
            _ => None,
        }
    }

    /// Returns the elements of an array; their keys have no meaning.
    pub(crate) fn elements(self) -> Option<Fields<'a>> {
        match self.value()? {
            RawBsonRef::Array(array) => Some(Fields(array.iter_elements())),
            _ => None,
        }
    }

    /// Returns a topology version; both of its fields are required.
    pub(crate) fn topology_version(self) -> Result<Option<TopologyVersion>, Malformed> {
        let Some(fields) = self.fields() else {
            return Ok(None);
        };
        let (mut process_id, mut counter) = (None, None);
        fields.each(|field| {
            match field.key() {
                "processId" => process_id = field.object_id(),
                "counter" => counter = field.integer(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(process_id
            .zip(counter)
            .map(|(process_id, counter)| TopologyVersion {
                process_id,
                counter,
            }))
    }
}
