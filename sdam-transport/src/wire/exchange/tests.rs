use std::{sync::Arc, time::Duration};

use sdam_core::{
    hello::Handshake,
    ids::{ObjectId, TopologyVersion},
    options::HandshakeOpcode,
};

use super::*;
use crate::wire::OpReply;

const BODY: &[u8] = &[5, 0, 0, 0, 0];

fn reply(request_id: i32, response_to: i32, more_to_come: bool) -> WireMessage {
    OpMsg { request_id, response_to, more_to_come, body: BODY, ..OpMsg::default() }
        .encode()
        .unwrap()
}

/// Returns an exchange whose first request, with id 1, is outstanding.
fn requested(streaming_allowed: bool) -> Exchange {
    let mut exchange = Exchange::new();
    let sent = exchange.request(streaming_allowed, |id| Ok(reply(id, 0, false))).unwrap();
    assert_eq!(sent.request_id(), 1);
    exchange
}

#[test]
fn a_message_out_of_turn_breaks_the_exchange_for_ever_m_23_o_37_o_39() {
    let check = |mut exchange: Exchange, message: WireMessage, error| {
        assert_eq!(exchange.accept(&message), Err(error));
        assert!(!exchange.is_usable());
        // Even the outstanding reply is no longer accepted.
        for later in [reply(71, 1, false), message] {
            assert_eq!(exchange.accept(&later), Err(WireError::BrokenOff));
        }
        assert_eq!(exchange.command(BODY), Err(WireError::BrokenOff));
        let hello = HelloRequest::poll(true, None);
        assert_eq!(exchange.hello(&hello), Err(WireError::BrokenOff));
        assert!(!exchange.is_usable());
    };
    check(Exchange::new(), reply(70, 0, false), WireError::UnexpectedReply);
    check(requested(false), reply(70, 1, true), WireError::UnexpectedMoreToCome);
    check(
        requested(false),
        reply(70, 2, false),
        WireError::WrongResponseTo { expected: 1, actual: 2 },
    );
    // A streamed reply names the reply before it, and not the request.
    let mut streaming = requested(true);
    streaming.accept(&reply(70, 1, true)).unwrap();
    assert_eq!(streaming.command(BODY), Err(WireError::ReplyOutstanding));
    let error = WireError::WrongResponseTo { expected: 70, actual: 1 };
    check(streaming, reply(71, 1, true), error);
    let query = OpQuery { request_id: 70, flags: 0, collection: "a", body: BODY };
    check(requested(false), query.encode().unwrap(), WireError::NotAReply);
    let mut broken = requested(false);
    broken.accept(&reply(70, 1, false)).unwrap();
    broken.break_off();
    check(broken, reply(71, 2, false), WireError::BrokenOff);
}

#[test]
fn op_reply_is_accepted_as_a_reply() {
    let answer = OpReply { request_id: 70, response_to: 1, flags: 0, body: BODY };
    let answer = answer.encode().unwrap();
    let mut exchange = requested(false);
    assert_eq!(exchange.accept(&answer), Ok(()));
}

#[test]
fn a_request_that_cannot_be_encoded_changes_nothing() {
    let mut exchange = Exchange::new();
    exchange.command(b"").unwrap_err();
    assert!(exchange.is_usable());
    assert_eq!(exchange.command(BODY).unwrap().request_id(), 1);
}

#[test]
fn request_ids_wrap_around_and_stay_positive() {
    let mut exchange = Exchange { last_request_id: i32::MAX, ..Exchange::new() };
    assert_eq!(exchange.command(BODY).unwrap().request_id(), 1);
}

#[test]
fn a_hello_is_framed_as_requested_and_streamed_only_if_it_allows_it_o_2_o_3_f_30_m_20() {
    let check = |hello: &HelloRequest, op_code, exhaust_allowed: bool| {
        let mut exchange = Exchange::new();
        let message = exchange.hello(hello).unwrap();
        assert_eq!(message.op_code(), op_code);
        assert_eq!(message.exhaust_allowed(), exhaust_allowed);
        assert_eq!(message.body(), hello.encode());
        assert_eq!((message.request_id(), message.response_to()), (1, 0));
        let refused = (!exhaust_allowed).then_some(WireError::UnexpectedMoreToCome);
        assert_eq!(exchange.accept(&reply(70, 1, true)).err(), refused);
        message
    };
    let handshake = |opcode| HelloRequest::handshake(Arc::new(Handshake::new([])), None, opcode);
    check(&handshake(HandshakeOpcode::OpMsg), OpCode::Msg, false);
    let legacy = check(&handshake(HandshakeOpcode::OpQuery), OpCode::Query, false);
    assert_eq!(legacy.collection(), Some("admin.$cmd"));
    assert_eq!(legacy.query_flags(), Some(OpQuery::SECONDARY_OK));

    let known = TopologyVersion { process_id: ObjectId::default(), counter: 3 };
    let mut awaitable = HelloRequest::awaitable(true, None, known, Duration::from_secs(10));
    check(&awaitable, OpCode::Msg, true);
    awaitable.op_query = true;
    let [mut modern, mut streamed] = [(); 2].map(|()| HelloRequest::poll(false, None));
    modern.modern = true;
    streamed.exhaust_allowed = true;
    for refused in [&mut modern, &mut streamed] {
        refused.op_query = true;
    }
    for refused in [awaitable, modern, streamed] {
        let mut exchange = Exchange::new();
        assert_eq!(exchange.hello(&refused), Err(WireError::NotInOpQuery));
        assert!(exchange.is_usable());
    }
}
