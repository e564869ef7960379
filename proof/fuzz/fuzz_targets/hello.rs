//! Parses arbitrary replies, and checks that the parsers for hello and for errors agree with simple
//! reference implementations on the same document, and that the parsed values are ordered and
//! bounded.
#![no_main]

#[path = "../../../sdam-core/tests/hello/reference.rs"]
mod reference;

use bson::{Document, RawDocumentBuf};
use libfuzzer_sys::fuzz_target;
use sdam_core::{
    error::{ErrorKind, Stage},
    hello::Hello,
    reply,
};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Also parses the same bytes as the fields of a document with a correct frame, so that the
    // fuzzer does not have to guess the document's length.
    let mut framed = vec![0; 4];
    framed.extend_from_slice(bytes);
    framed.push(0);
    let length = i32::try_from(framed.len()).expect("inputs are short");
    framed[..4].copy_from_slice(&length.to_le_bytes());
    check(&framed);
});

fn check(bytes: &[u8]) {
    let parsed = Hello::parse(bytes);
    let error = reply::error(bytes, Stage::Hello);
    match &parsed {
        Ok(hello) => {
            for members in [&hello.hosts, &hello.passives, &hello.arbiters] {
                assert!(members.is_sorted_by(|left, right| left < right));
                assert!(members.len() <= Hello::MAX_MEMBERS);
            }
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Command | ErrorKind::Protocol));
            assert_eq!(error.stage(), Stage::Hello);
        }
    }
    let Some(document) = document(bytes) else {
        return;
    };
    assert_eq!(parsed, reference::parse(&document), "{document}");
    assert_eq!(error, reference::error(&document), "{document}");
}

/// Parses `bytes` as one complete document. Returns `None` if a key is repeated, because `Document`
/// does not support that.
fn document(bytes: &[u8]) -> Option<Document> {
    let length = i32::from_le_bytes(*bytes.first_chunk()?);
    if usize::try_from(length) != Ok(bytes.len()) {
        return None;
    }
    let document = Document::from_reader(bytes).ok()?;
    let again = RawDocumentBuf::try_from(&document).ok()?;
    (again.as_bytes().len() == bytes.len()).then_some(document)
}
