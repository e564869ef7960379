//! Tests of how servers frame messages (sections O.3 and O.4).

use bson::{Document, doc};
use sdam_transport::wire::{OpMsg, OpReply, Sequence, WireMessage};

use crate::support::{Fixture, hello, insert, is_ok, ping};

fn message(id: i32, body: &Document) -> WireMessage {
    let message = OpMsg { request_id: id, body: &body.to_vec().unwrap(), ..OpMsg::default() };
    message.encode().unwrap()
}

#[test]
fn messages_may_be_split_and_coalesced() {
    let mut fixture = Fixture::standalone();
    let connection = fixture.connect(0);
    let mut bytes = message(1, &ping()).into_bytes();
    bytes.extend(message(2, &hello()).into_bytes());
    for byte in &bytes {
        fixture.send_bytes(connection, &[*byte]);
    }
    bytes.extend(message(3, &ping()).into_bytes());
    fixture.send_bytes(connection, &bytes);
    let mut answered = Vec::new();
    while let Some(reply) = fixture.try_receive(connection) {
        assert!(is_ok(&reply.body));
        answered.push(reply.response_to);
    }
    assert_eq!(answered, [1, 2, 1, 2, 3]);
}

#[test]
fn o_31_o_32_o_36_invalid_messages_close_the_connection() {
    let good = message(1, &ping()).into_bytes();
    let patched = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    for bad in [
        patched(0, &15_i32.to_le_bytes()),
        patched(0, &(-1_i32).to_le_bytes()),
        patched(0, &48_000_001_i32.to_le_bytes()),
        patched(12, &2012_i32.to_le_bytes()),
        patched(12, &4711_i32.to_le_bytes()),
        patched(16, &[4]),
        patched(20, &[9]),
        patched(21, &1000_i32.to_le_bytes()),
    ] {
        let mut fixture = Fixture::standalone();
        let connection = fixture.connect(0);
        fixture.send_bytes(connection, &bad);
        assert!(fixture.is_closed(connection), "{bad:?}");
        assert!(fixture.try_receive(connection).is_none());
    }
}

#[test]
fn o_31_a_reply_sent_as_a_request_closes_the_connection() {
    let mut fixture = Fixture::standalone();
    let connection = fixture.connect(0);
    let reply =
        OpReply { request_id: 1, response_to: 0, flags: 0, body: &ping().to_vec().unwrap() };
    fixture.send_message(connection, &reply.encode().unwrap());
    assert!(fixture.is_closed(connection));
}

#[test]
fn o_32_document_sequences_are_read_as_arguments() {
    let mut fixture = Fixture::standalone();
    let connection = fixture.connect(0);
    let documents: Vec<u8> = [doc! { "_id": 1 }, doc! { "_id": 2 }]
        .iter()
        .flat_map(|document| document.to_vec().unwrap())
        .collect();
    let insert = OpMsg {
        request_id: 1,
        body: &doc! { "insert": "things", "$db": "test" }.to_vec().unwrap(),
        sequences: &[Sequence::new("documents", &documents)],
        checksum: true,
        ..OpMsg::default()
    };
    fixture.send_message(connection, &insert.encode().unwrap());
    assert_eq!(fixture.receive(connection).body.get_i32("n").unwrap(), 2);
}

#[test]
fn o_34_requests_with_more_to_come_are_executed_without_a_reply() {
    let mut fixture = Fixture::standalone();
    let connection = fixture.connect(0);
    let insert = OpMsg {
        request_id: 1,
        more_to_come: true,
        body: &insert().to_vec().unwrap(),
        ..OpMsg::default()
    };
    fixture.send_message(connection, &insert.encode().unwrap());
    assert!(fixture.try_receive(connection).is_none());
    let count = fixture.call(connection, &doc! { "count": "things", "$db": "test" });
    assert_eq!(count.get_i32("n").unwrap(), 1);
}
