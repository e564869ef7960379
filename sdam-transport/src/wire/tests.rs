use super::{format::crc32c, *};

/// The documents `{}` and `{"": {}}`. The codec checks only their lengths.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
const NESTED: &[u8] = &[12, 0, 0, 0, 3, 0, 5, 0, 0, 0, 0, 0];

fn message(request_id: i32, response_to: i32, op_code: i32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [16 + rest.len() as i32, request_id, response_to, op_code] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(rest);
    bytes
}

fn op_msg(flags: u32, sections: &[&[u8]]) -> Vec<u8> {
    message(7, 5, 2013, &[&flags.to_le_bytes(), &sections.concat()[..]].concat())
}

fn body(document: &[u8]) -> Vec<u8> {
    [&[0], document].concat()
}

fn sequence(identifier: &str, documents: &[&[u8]]) -> Vec<u8> {
    let documents = documents.concat();
    let size = 4 + identifier.len() as i32 + 1 + documents.len() as i32;
    [&[1], &size.to_le_bytes()[..], identifier.as_bytes(), &[0], &documents].concat()
}

#[track_caller]
fn refused(bytes: Vec<u8>, expected: &WireError) {
    assert_eq!(&WireMessage::decode(bytes).unwrap_err(), expected);
}

#[test]
fn header_is_four_little_endian_integers_o_30() {
    let bytes = message(0x0102_0304, -2, 2013, &[&[0; 4], &body(EMPTY)[..]].concat());
    assert_eq!(bytes[4..8], [4, 3, 2, 1]);
    let decoded = WireMessage::decode(bytes.clone()).unwrap();
    assert_eq!(decoded.request_id(), 0x0102_0304);
    assert_eq!(decoded.response_to(), -2);
    assert_eq!(decoded.op_code(), OpCode::Msg);
    assert_eq!(decoded.body(), EMPTY);
    assert_eq!(decoded.as_bytes(), bytes);
}

#[test]
fn the_declared_length_must_match_the_message_o_36() {
    refused(vec![0; 15], &WireError::TooShort { length: 15 });
    for declared in [i32::MIN, -1, 0, 15] {
        let mut bytes = op_msg(0, &[&body(EMPTY)]);
        bytes[..4].copy_from_slice(&declared.to_le_bytes());
        refused(bytes, &WireError::LengthBelowHeader { declared });
    }
    for (declared, cut) in [(26_usize, 1), (26, 10)] {
        let mut bytes = op_msg(0, &[&body(EMPTY)]);
        bytes.truncate(declared - cut);
        let actual = declared - cut;
        refused(bytes, &WireError::WrongLength { declared, actual });
    }
}

#[test]
fn unknown_required_flags_are_refused_and_optional_ones_ignored_o_31() {
    for bit in 2..16 {
        refused(op_msg(1 << bit, &[&body(EMPTY)]), &WireError::UnknownFlags(1 << bit));
    }
    for bit in 17..32 {
        WireMessage::decode(op_msg(1 << bit, &[&body(EMPTY)])).unwrap();
    }
    let check = |flags, more_to_come, exhaust_allowed| {
        let decoded = WireMessage::decode(op_msg(flags, &[&body(EMPTY)])).unwrap();
        assert_eq!(decoded.more_to_come(), more_to_come);
        assert_eq!(decoded.exhaust_allowed(), exhaust_allowed);
        assert!(!decoded.has_checksum());
        assert!(!decoded.is_query_failure());
    };
    check(0, false, false);
    check(2, true, false);
    check(1 << 16, false, true);
    check(1 << 16 | 2, true, true);
}

#[test]
fn sections_come_in_any_order_with_one_body_and_unique_identifiers_o_32() {
    let (first, second) = (sequence("a", &[EMPTY, NESTED]), sequence("b", &[]));
    for sections in [
        [&body(NESTED)[..], &first, &second],
        [&first, &body(NESTED), &second],
        [&first, &second, &body(NESTED)],
    ] {
        let decoded = WireMessage::decode(op_msg(0, &sections)).unwrap();
        assert_eq!(decoded.body(), NESTED);
        let sequences: Vec<_> = decoded
            .sequences()
            .map(|sequence| (sequence.identifier(), sequence.documents().collect::<Vec<_>>()))
            .collect();
        assert_eq!(sequences, [("a", vec![EMPTY, NESTED]), ("b", vec![])]);
    }
    refused(op_msg(0, &[]), &WireError::NoBody);
    refused(op_msg(0, &[&first]), &WireError::NoBody);
    refused(op_msg(0, &[&body(EMPTY), &body(EMPTY)]), &WireError::SecondBody);
    refused(op_msg(0, &[&first, &body(EMPTY), &first]), &WireError::DuplicateSequence("a".into()));
    refused(op_msg(0, &[&body(EMPTY), &[2], EMPTY]), &WireError::UnknownSection(2));
}

#[test]
fn documents_must_fill_their_section() {
    let no_body = WireError::Document { field: "the body" };
    refused(op_msg(0, &[&body(&[4, 0, 0, 0])]), &no_body);
    refused(op_msg(0, &[&body(&[5, 0, 0, 0, 1])]), &no_body);
    refused(op_msg(0, &[&body(&(-1_i32).to_le_bytes())]), &no_body);
    refused(op_msg(0, &[&body(&[6, 0, 0, 0, 0])]), &WireError::Truncated { field: "the body" });

    for size in [i32::MIN, 0, 10, i32::MAX] {
        let mut sections = sequence("a", &[]);
        sections[1..5].copy_from_slice(&size.to_le_bytes());
        let error = WireMessage::decode(op_msg(0, &[&sections, &body(EMPTY)])).unwrap_err();
        assert!(matches!(error, WireError::Truncated { .. }), "{size}: {error}");
    }
    // One document extends beyond its section into the next section.
    let mut sections = sequence("a", &[EMPTY]);
    sections[7] = 11;
    refused(
        op_msg(0, &[&sections, &body(EMPTY)]),
        &WireError::Truncated { field: "a document of a sequence" },
    );
    // One identifier lacks a NUL, and the other is not UTF-8.
    refused(
        op_msg(0, &[&[1, 5, 0, 0, 0, b'a'], &body(EMPTY)]),
        &WireError::Truncated { field: "the identifier of a document sequence" },
    );
    refused(
        op_msg(0, &[&[1, 6, 0, 0, 0, 0xFF, 0], &body(EMPTY)]),
        &WireError::NotUtf8 { field: "the identifier of a document sequence" },
    );
}

#[test]
fn checksum_is_verified_if_flagged_o_38() {
    let sealed =
        OpMsg { request_id: 1, checksum: true, body: NESTED, ..OpMsg::default() }.encode().unwrap();
    assert!(sealed.has_checksum());
    assert_eq!(sealed.body(), NESTED);
    // Flipping any bit makes the message invalid.
    for at in 0..sealed.as_bytes().len() * 8 {
        let mut bytes = sealed.as_bytes().to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        WireMessage::decode(bytes).unwrap_err();
    }
    let mut bytes = sealed.into_bytes();
    let last = bytes.len() - 1;
    bytes[last] ^= 0xFF;
    assert!(matches!(
        WireMessage::decode(bytes).unwrap_err(),
        WireError::Checksum { declared, actual } if declared ^ actual == 0xFF00_0000
    ));
    refused(op_msg(1, &[&[0; 3]]), &WireError::Truncated { field: "the checksum" });
}

#[test]
fn op_query_is_a_command_on_a_collection_o_40() {
    let query = OpQuery {
        request_id: 3,
        flags: OpQuery::SECONDARY_OK,
        collection: "admin.$cmd",
        body: NESTED,
    }
    .encode()
    .unwrap();
    let rest = [&4_u32.to_le_bytes()[..], b"admin.$cmd\0", &[0; 4], &[0xFF; 4], NESTED].concat();
    assert_eq!(query.as_bytes(), message(3, 0, 2004, &rest));
    assert_eq!(query.op_code(), OpCode::Query);
    assert_eq!(query.collection(), Some("admin.$cmd"));
    assert_eq!(query.query_flags(), Some(4));
    assert_eq!(query.body(), NESTED);
    assert!(!query.more_to_come() && query.sequences().next().is_none());

    // Only a projection may follow the query.
    WireMessage::decode(message(3, 0, 2004, &[&rest, EMPTY].concat())).unwrap();
    refused(message(3, 0, 2004, &[&rest, EMPTY, &[0]].concat()), &WireError::TrailingBytes);
}

#[test]
fn op_reply_has_the_documents_it_declares_o_41() {
    let reply =
        OpReply { request_id: 4, response_to: 3, flags: OpReply::QUERY_FAILURE, body: NESTED }
            .encode()
            .unwrap();
    let rest = |documents: i32| {
        [&2_u32.to_le_bytes()[..], &[0; 12], &documents.to_le_bytes(), NESTED].concat()
    };
    assert_eq!(reply.as_bytes(), message(4, 3, 1, &rest(1)));
    assert_eq!((reply.response_to(), reply.body()), (3, NESTED));
    assert!(reply.is_query_failure());

    let two = WireMessage::decode(message(4, 3, 1, &[&rest(2)[..], EMPTY].concat())).unwrap();
    assert_eq!(two.body(), NESTED);
    refused(message(4, 3, 1, &rest(0)), &WireError::NoBody);
    refused(message(4, 3, 1, &rest(-1)), &WireError::NoBody);
    refused(
        message(4, 3, 1, &rest(i32::MAX)),
        &WireError::Truncated { field: "a further document of the reply" },
    );
    refused(message(4, 3, 1, &[&rest(1)[..], EMPTY].concat()), &WireError::TrailingBytes);
}

#[test]
fn other_opcodes_are_refused_by_name_o_45() {
    refused(message(1, 0, 2012, &[0; 16]), &WireError::Compressed);
    refused(message(1, 0, 2010, &[]), &WireError::UnknownOpCode(2010));
    assert!(WireError::Compressed.to_string().contains("OP_COMPRESSED"));
}

#[test]
fn invalid_messages_are_not_encoded() {
    let no_document = OpMsg { body: b"no bson", ..OpMsg::default() };
    assert!(matches!(
        no_document.encode(),
        Err(WireError::Truncated { .. } | WireError::Document { .. })
    ));
    let sequences = [Sequence::new("a\0b", EMPTY)];
    let nul = OpMsg { body: EMPTY, sequences: &sequences, ..OpMsg::default() };
    assert!(matches!(nul.encode(), Err(WireError::NotUtf8 { .. })));
    let nul = OpQuery { request_id: 1, flags: 0, collection: "a\0b", body: EMPTY };
    assert!(matches!(nul.encode(), Err(WireError::NotUtf8 { .. })));
}

#[test]
fn printing_a_message_reveals_nothing_of_its_documents() {
    let body = bson::rawdoc! { "saslStart": 1, "payload": "\0ada\0pencil" };
    let message =
        OpMsg { request_id: 7, response_to: 6, body: body.as_bytes(), ..OpMsg::default() };
    let message = message.encode().unwrap();
    let length = message.as_bytes().len();
    let expected = format!(
        "WireMessage {{ op_code: Msg, request_id: 7, response_to: 6, length: {length}, .. }}"
    );
    assert_eq!(format!("{message:?}"), expected);
}

#[test]
fn checksum_is_that_of_rfc_3720() {
    // The test vectors of RFC 3720, appendix B.4, and the customary check value.
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    assert_eq!(crc32c(b""), 0);
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    assert_eq!(crc32c(&ascending), 0x46DD_794E);
    assert_eq!(crc32c(&descending), 0x113F_DB5C);
}
