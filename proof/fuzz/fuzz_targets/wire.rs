//! Checks arbitrary messages: decoding keeps every byte, and encoding the parts again yields a
//! message with the same parts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sdam_transport::wire::{Exchange, OpCode, OpMsg, OpQuery, OpReply, WireMessage};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Also decodes the same bytes with a correct header, so that the fuzzer need not find one.
    let mut framed = bytes.to_vec();
    if let Some(header) = framed.first_chunk_mut::<16>() {
        let op_code = [2013_i32, 2004, 1][usize::from(header[12]) % 3];
        let length = i32::try_from(bytes.len()).expect("inputs are short");
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[12..].copy_from_slice(&op_code.to_le_bytes());
        check(&framed);
    }
});

fn check(bytes: &[u8]) {
    let Ok(message) = WireMessage::decode(bytes.to_vec()) else {
        return;
    };
    assert_eq!(message.as_bytes(), bytes);
    let again = encode(&message);
    assert_eq!(Parts::of(&again), Parts::of(&message));
    // The first encoding produces the canonical form, so a second encoding must not change
    // anything.
    assert_eq!(encode(&again), again);
    // No request was sent, so no reply is accepted.
    assert!(Exchange::new().accept(&message).is_err());
}

fn encode(message: &WireMessage) -> WireMessage {
    let encoded = match message.op_code() {
        OpCode::Msg => {
            let sequences: Vec<_> = message.sequences().collect();
            OpMsg {
                request_id: message.request_id(),
                response_to: message.response_to(),
                more_to_come: message.more_to_come(),
                exhaust_allowed: message.exhaust_allowed(),
                checksum: message.has_checksum(),
                body: message.body(),
                sequences: &sequences,
            }
            .encode()
        }
        OpCode::Query => OpQuery {
            request_id: message.request_id(),
            flags: message.query_flags().expect("every OP_QUERY has flags"),
            collection: message.collection().expect("every OP_QUERY has a collection"),
            body: message.body(),
        }
        .encode(),
        OpCode::Reply => OpReply {
            request_id: message.request_id(),
            response_to: message.response_to(),
            flags: if message.is_query_failure() { OpReply::QUERY_FAILURE } else { 0 },
            body: message.body(),
        }
        .encode(),
        other => unreachable!("{other:?} has no encoder"),
    };
    encoded.expect("what was decoded can be written")
}

/// The parts of a message that decoding and encoding must preserve.
#[derive(Debug, PartialEq)]
struct Parts<'a> {
    op_code: OpCode,
    request_id: i32,
    /// The `responseTo`, or `None` for an OP_QUERY, in which this field is ignored.
    response_to: Option<i32>,
    flags: [bool; 4],
    query_flags: Option<u32>,
    collection: Option<&'a str>,
    body: &'a [u8],
    sequences: Vec<(&'a str, Vec<&'a [u8]>)>,
}

impl<'a> Parts<'a> {
    fn of(message: &'a WireMessage) -> Self {
        let op_code = message.op_code();
        Self {
            op_code,
            request_id: message.request_id(),
            response_to: (op_code != OpCode::Query).then(|| message.response_to()),
            flags: [
                message.more_to_come(),
                message.exhaust_allowed(),
                message.has_checksum(),
                message.is_query_failure(),
            ],
            query_flags: message.query_flags(),
            collection: message.collection(),
            body: message.body(),
            sequences: message
                .sequences()
                .map(|sequence| (sequence.identifier(), sequence.documents().collect()))
                .collect(),
        }
    }
}
