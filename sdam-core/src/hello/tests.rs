use std::{vec, vec::Vec};

use bson::{Bson, Document, doc};

use super::*;
use crate::{
    document::DocumentWriter,
    error::{Error, ErrorKind},
    ids::ObjectId,
};

mod request;

#[path = "../../benches/fixture/mod.rs"]
mod fixture;

fn encode(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

#[test]
fn a_primary_of_mongodb_6_is_parsed_in_full() {
    // The parser drops `opTime` (A-25, A-26, C-13).
    let reply = fixture::primary_hello();
    assert!((760..780).contains(&reply.len()), "{}", reply.len());
    let host = |number| ServerAddress::new(&std::format!("db-{number}.lan"), 27017);
    let expected = Hello {
        server_type: ServerType::RsPrimary,
        wire_versions: WireVersions { min: 0, max: 17 },
        me: Some(host(0)),
        hosts: Box::from([host(0), host(1), host(2)]),
        set_name: Some("rs0".into()),
        election: ElectionTuple {
            election_id: ObjectId::parse_hex("7fffffff0000000000000007"),
            set_version: Some(1),
        },
        primary: Some(host(0)),
        last_write_date: Some(1_717_171_717_000),
        logical_session_timeout_minutes: Some(30),
        topology_version: Some(TopologyVersion {
            process_id: ObjectId::from_bytes([0x66; 12]),
            counter: 6,
        }),
        hello_ok: true,
        connection_id: Some(53),
        max_bson_object_size: Some(16_777_216),
        max_message_size_bytes: Some(48_000_000),
        max_write_batch_size: Some(100_000),
        ..Hello::default()
    };
    assert_eq!(Hello::parse(&reply), Ok(expected));
}

fn parse(document: &Document) -> Result<Hello, Error> {
    Hello::parse(&encode(document))
}

#[test]
fn a_primary_shares_the_memory_of_an_equal_member() {
    let hello = parse(&doc! { "ok": 1, "hosts": ["b", "C:27018"], "primary": "c:27018" }).unwrap();
    let primary = hello.hosts[1].as_str().as_ptr();
    assert_eq!(hello.primary.unwrap().as_str().as_ptr(), primary);
}

#[test]
fn a_member_whose_set_name_is_not_utf_8_is_still_a_member() {
    let mut reply = encode(&doc! { "ok": 1, "setName": "r?s", "secondary": true });
    let at = reply.iter().position(|byte| *byte == b'?').unwrap();
    reply[at] = 0xff;
    let hello = Hello::parse(&reply).unwrap();
    assert_eq!(hello.server_type, ServerType::RsSecondary);
    assert_eq!(hello.set_name.as_deref(), Some("r\u{fffd}s"));
}

#[test]
fn a_reply_truncated_at_any_byte_is_a_protocol_error() {
    let reply = fixture::primary_hello();
    for length in 0..reply.len() {
        let error = Hello::parse(&reply[..length]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "at {length}");
        assert!(error.message().starts_with("malformed BSON"), "{error}");
    }
}

#[test]
fn wrong_lengths_are_protocol_errors() {
    let base = encode(&doc! { "setName": "rs", "tags": { "a": "b" }, "hosts": ["h"], "ok": 1 });
    let after = |key: &str| {
        let key: Vec<u8> = key.bytes().chain([0]).collect();
        let found = base.windows(key.len()).position(|bytes| bytes == key);
        found.unwrap() + key.len()
    };
    for at in [0, after("setName"), after("tags"), after("hosts")] {
        for length in [-1, i32::MIN, i32::MAX, 0, 1] {
            let mut bytes = base.clone();
            bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
            let error = Hello::parse(&bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{length} at {at}: {error}");
        }
    }
    for bytes in [&b""[..], b"\0", b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0xff; 64]] {
        assert_eq!(Hello::parse(bytes).unwrap_err().kind(), ErrorKind::Protocol);
    }
}

#[test]
fn members_and_tags_are_bounded() {
    let hosts: Vec<Bson> =
        (0..10_000).map(|number| std::format!("host-{number:05}").into()).collect();
    let tags: Document =
        (0..10_000).map(|number| (std::format!("tag-{number}"), "x".into())).collect();
    let hello = parse(&doc! { "ok": 1, "hosts": hosts, "tags": tags }).unwrap();
    assert_eq!(hello.hosts.len(), Hello::MAX_MEMBERS);
    assert_eq!(hello.hosts[0].as_str(), "host-00000:27017");
    assert_eq!(hello.tags.iter().len(), Hello::MAX_MEMBERS);
}

#[test]
fn deeply_nested_documents_are_skipped_without_recursion() {
    // Nests 100,000 documents in fields of the same name, which would overflow the stack of a
    // recursive parser.
    let mut deep = Vec::from([5, 0, 0, 0, 0]);
    let levels = 100_000;
    let opening = 4 + 1 + 2;
    let mut bytes = Vec::new();
    for level in 0..levels {
        let length = (levels - level) * (opening + 1) + deep.len();
        bytes.extend_from_slice(&i32::try_from(length).unwrap().to_le_bytes());
        bytes.extend_from_slice(b"\x03a\0");
    }
    bytes.append(&mut deep);
    bytes.resize(bytes.len() + levels, 0);
    for key in ["unknown", "lastWrite", "topologyVersion", "tags", "writeConcernError"] {
        let mut reply = DocumentWriter::new();
        reply.encoded_document(key, &bytes).unwrap();
        reply.int32("ok", 1);
        assert!(Hello::parse(&reply.finish()).is_ok(), "{key}");
    }
}

#[test]
fn the_last_of_repeated_fields_is_used() {
    let mut reply = encode(&doc! { "setName": "a", "setNamE": "b", "ok": 0, "oK": 1 });
    for byte in &mut reply {
        match *byte {
            b'E' => *byte = b'e',
            b'K' => *byte = b'k',
            _ => {}
        }
    }
    let hello = Hello::parse(&reply).unwrap();
    assert_eq!(hello.set_name.as_deref(), Some("b"));
}

#[test]
fn a_message_may_have_the_announced_size_or_else_that_of_the_specification() {
    // The limit comes from the connection's own handshake (C-30).
    let usual = 48_000_000;
    for (announced, expected) in [(50_000_000, 50_000_000), (0, usual), (-1, usual)] {
        let reply = doc! { "ok": 1, "maxMessageSizeBytes": announced };
        assert_eq!(parse(&reply).unwrap().max_message_size(), expected);
    }
    assert_eq!(Hello::default().max_message_size(), usual);
}
