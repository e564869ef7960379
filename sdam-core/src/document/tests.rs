//! Tests that documents are read as the `bson` crate reads them.

use std::{string::String, vec, vec::Vec};

use bson::{Bson, RawDocumentBuf, doc, raw::RawDocument, spec::ElementType};
use proptest::{collection, prelude::*};

use super::{Fields, end_of_text};

type Elements = Vec<(String, ElementType, usize)>;

/// Reads the keys, types and lengths of all fields with this module; returns `None` for a malformed
/// document.
fn ours(bytes: &[u8]) -> Option<Elements> {
    let fields = Fields::of(bytes).ok()?;
    fields
        .map(|field| field.map(|own| (own.key().into(), own.kind, own.value.len())).ok())
        .collect()
}

fn theirs(bytes: &[u8]) -> Option<Elements> {
    let elements = RawDocument::from_bytes(bytes).ok()?.iter_elements();
    elements
        .map(|element| {
            let element = element.ok()?;
            let key = element.key().as_str().into();
            Some((key, element.element_type(), element.size()))
        })
        .collect()
}

/// Returns a document with an element of every type.
fn every_type() -> Vec<u8> {
    let id = bson::oid::ObjectId::from_bytes([3; 12]);
    let code = bson::JavaScriptCodeWithScope { code: "f()".into(), scope: doc! { "x": 1 } };
    let binary =
        bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: [1, 2, 3].into() };
    let regex = bson::Regex { pattern: "a+".try_into().unwrap(), options: "i".try_into().unwrap() };
    let document = doc! {
        "double": 1.5, "text": "ä", "document": { "a": [1, 2] }, "array": [{}, "x"],
        "binary": binary, "undefined": Bson::Undefined, "id": id, "true": true,
        "date": bson::DateTime::from_millis(-1), "null": Bson::Null, "regex": regex,
        "code": Bson::JavaScriptCode("g()".into()), "symbol": Bson::Symbol("s".into()),
        "scope": code, "int": 7, "time": bson::Timestamp { time: 1, increment: 2 },
        "long": 8_i64, "decimal": bson::Decimal128::from_bytes([9; 16]),
        "min": Bson::MinKey, "max": Bson::MaxKey,
    };
    let mut bytes = RawDocumentBuf::try_from(&document).unwrap().into_bytes();
    // `bson` can read a pointer to another collection, but not create one.
    bytes.pop();
    bytes.extend(b"\x0cpointer\0\x02\0\0\0n\0");
    bytes.extend([5; 12]);
    bytes.push(0);
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[test]
fn an_element_of_every_type_is_read() {
    let bytes = every_type();
    let read = ours(&bytes).unwrap();
    assert_eq!(read.len(), 21);
    assert_eq!(Some(read), theirs(&bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_end_of_a_text_is_its_first_zero_byte(
        bytes in collection::vec(prop_oneof![4 => 1_u8..128, 1 => 127_u8..=255, 1 => 0_u8..2], 0..40),
        text in "[a-zäß€😀]{0,20}",
    ) {
        for bytes in [bytes.clone(), [text.as_bytes(), b"\0", &bytes].concat()] {
            let end = bytes.iter().position(|byte| *byte == 0);
            let valid = end.filter(|end| std::str::from_utf8(&bytes[..*end]).is_ok());
            prop_assert_eq!(end_of_text(&bytes), valid);
        }
    }

    #[test]
    fn changed_documents_are_read_and_refused_like_by_bson(
        changes in collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        is_cut in prop::bool::weighted(0.2),
    ) {
        let mut bytes = every_type();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if is_cut {
            // The declared length is adjusted, so that only the elements are malformed.
            bytes.truncate(cut.index(bytes.len()).max(5));
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            *bytes.last_mut().unwrap() = 0;
        }
        prop_assert_eq!(ours(&bytes), theirs(&bytes));
    }
}
