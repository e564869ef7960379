use core::time::Duration;
use std::{sync::Arc, vec};

use bson::{Bson, Document, doc};

use super::super::*;
use crate::options::{HandshakeOpcode, ServerApi};

fn decode(request: &HelloRequest) -> Document {
    Document::from_reader(&*request.encode()).unwrap()
}

fn handshake() -> Arc<Handshake> {
    Arc::new(Handshake::new(super::encode(&client())))
}

fn client() -> Document {
    doc! { "driver": { "name": "sdam", "version": "1" } }
}

/// Checks the fields of a request, and whether it is an OP_QUERY.
#[track_caller]
fn check(request: &HelloRequest, op_query: bool, expected: Document) {
    assert_eq!((request.op_query, decode(request)), (op_query, expected));
}

#[test]
fn the_first_message_is_legacy_hello_with_the_arguments_of_the_handshake() {
    // The first hello is legacy hello with `helloOk` (F-6, O-2, O-4, O-5, O-35).
    let request = HelloRequest::handshake(handshake(), None, HandshakeOpcode::OpMsg);
    assert!(!request.exhaust_allowed);
    let expected = doc! {
        "isMaster": 1, "helloOk": true, "client": client(), "backpressure": "2", "$db": "admin",
    };
    check(&request, false, expected);
}

#[test]
fn arguments_are_replaced_in_a_first_message_only() {
    // Only new connections send changed metadata (O-27, F-9).
    let other = Arc::new(Handshake::new(super::encode(&doc! { "platform": "other" })));
    let request = HelloRequest::handshake(handshake(), None, HandshakeOpcode::OpMsg);
    let request = decode(&request.with_handshake(Arc::clone(&other)));
    assert_eq!(request.get_document("client").unwrap(), &doc! { "platform": "other" });
    let later = HelloRequest::poll(true, None);
    assert_eq!(later.clone().with_handshake(other), later);
}

#[test]
fn a_declared_api_or_a_load_balancer_requires_hello_from_the_start() {
    // The request is `hello`, and never an OP_QUERY (F-5, O-2, O-3, O-9, O-10).
    let (strict, deprecation_errors) = (Some(true), Some(false));
    let api = Arc::new(ServerApi { version: "1".into(), strict, deprecation_errors });
    let request = HelloRequest::handshake(handshake(), Some(api), HandshakeOpcode::OpQuery);
    let expected = doc! {
        "hello": 1, "helloOk": true, "client": client(), "backpressure": "2",
        "apiVersion": "1", "apiStrict": true, "apiDeprecationErrors": false, "$db": "admin",
    };
    check(&request, false, expected);
    let balanced = Arc::new(Handshake { load_balanced: true, ..Handshake::default() });
    let request = HelloRequest::handshake(balanced, None, HandshakeOpcode::OpQuery);
    let expected = doc! {
        "hello": 1, "helloOk": true, "backpressure": "2", "loadBalanced": true, "$db": "admin",
    };
    check(&request, false, expected);
}

#[test]
fn op_query_hello_has_no_database_argument() {
    // OP_QUERY has the format of old servers, without `$db` (O-2, O-33, O-40).
    let request = HelloRequest::handshake(Arc::default(), None, HandshakeOpcode::OpQuery);
    check(&request, true, doc! { "isMaster": 1, "helloOk": true, "backpressure": "2" });
    let poll = HelloRequest::poll(false, None).with_op_query(true);
    check(&poll, true, doc! { "isMaster": 1, "helloOk": true });
    assert!(!HelloRequest::poll(true, None).with_op_query(true).op_query);
}

#[test]
fn later_messages_carry_the_api_but_no_handshake_arguments() {
    // Later hellos do not repeat the handshake's arguments (F-6, F-6b, F-7, F-9, O-6, O-9).
    let check = |request: HelloRequest, expected: Document| {
        assert_eq!(decode(&request), expected);
        assert_eq!(request.command_name(), expected.keys().next().unwrap());
    };
    check(HelloRequest::poll(false, None), doc! { "isMaster": 1, "helloOk": true, "$db": "admin" });
    check(HelloRequest::poll(true, None), doc! { "hello": 1, "helloOk": true, "$db": "admin" });
    check(
        HelloRequest::poll(false, Some(Arc::new(ServerApi::v1()))),
        doc! { "hello": 1, "helloOk": true, "apiVersion": "1", "$db": "admin" },
    );
}

#[test]
fn an_awaitable_hello_carries_topology_version_and_max_await_time() {
    // The wait is in milliseconds, and `exhaustAllowed` is set (M-3, M-8, O-35).
    let known = TopologyVersion { process_id: ObjectId::from_bytes([9; 12]), counter: 4 };
    let id = bson::oid::ObjectId::from_bytes([9; 12]);
    for (max_await, millis) in [(Duration::from_secs(10), 10_000), (Duration::MAX, i64::MAX)] {
        let request = HelloRequest::awaitable(true, None, known, max_await);
        assert!(request.exhaust_allowed);
        let expected = doc! {
            "hello": 1, "helloOk": true, "topologyVersion": { "processId": id, "counter": 4_i64 },
            "maxAwaitTimeMS": millis, "$db": "admin",
        };
        check(&request, false, expected);
    }
}

#[test]
fn a_client_document_that_is_not_bson_is_left_out() {
    for client in [&b"x"[..], &[9, 0, 0, 0, 0]] {
        let handshake = Arc::new(Handshake::new(client));
        let request = HelloRequest::handshake(handshake, None, HandshakeOpcode::OpMsg);
        assert!(!decode(&request).contains_key("client"));
    }
}

#[test]
fn ping_carries_the_declared_api() {
    // An idle connection is probed with `ping`, which has no handshake arguments (H-12, F-9).
    let decode = |api| Document::from_reader(&*ping(api)).unwrap();
    assert_eq!(decode(None), doc! { "ping": 1, "$db": "admin" });
    let mut api = ServerApi::v1();
    api.strict = Some(true);
    let expected = doc! { "ping": 1, "apiVersion": "1", "apiStrict": true, "$db": "admin" };
    assert_eq!(decode(Some(&api)), expected);
}

#[test]
fn only_the_first_message_asks_about_authentication_and_printing_it_hides_the_command() {
    // Monitors do not authenticate, and later hellos omit these fields (O-5, O-6, F-3).
    let first = doc! { "saslStart": 1, "payload": "pencil", "db": "admin" };
    let auth = HelloAuth {
        sasl_supported_mechs: Some("admin.user".into()),
        speculative_authenticate: Some(super::encode(&first).into()),
    };
    let request = HelloRequest::handshake(handshake(), None, HandshakeOpcode::OpMsg);
    let request = request.with_auth(auth.clone());
    let command = decode(&request);
    assert_eq!(command.get_str("saslSupportedMechs").unwrap(), "admin.user");
    assert_eq!(command.get_document("speculativeAuthenticate").unwrap(), &first);
    let shown = std::format!("{request:?}");
    assert!(shown.contains("<hidden>") && !shown.contains("112, 101, 110"));
    let malformed = Some([1, 2].into());
    let malformed = HelloAuth { speculative_authenticate: malformed, ..HelloAuth::default() };
    assert!(!decode(&request.with_auth(malformed)).contains_key("speculativeAuthenticate"));
    let later = HelloRequest::poll(true, None);
    assert_eq!(later.clone().with_auth(auth), later);
}

#[test]
fn the_reply_to_a_speculative_authentication_is_removed_and_all_else_kept() {
    let check = |reply: Document, expected: Document| {
        let reply = super::encode(&reply);
        let rest = without_speculative_reply(&reply);
        assert_eq!(Document::from_reader(&*rest).unwrap(), expected);
    };
    let secret = doc! { "conversationId": 1, "payload": "r=1,s=2,i=3", "done": false };
    let mechanisms = std::vec!["SCRAM-SHA-256"];
    check(doc! { "speculativeAuthenticate": &secret }, doc! {});
    check(
        doc! { "saslSupportedMechs": &mechanisms, "speculativeAuthenticate": secret, "ok": 1.0 },
        doc! { "saslSupportedMechs": mechanisms, "ok": 1.0 },
    );
    check(doc! { "a": { "b": 1 }, "ok": 1 }, doc! { "a": { "b": 1 }, "ok": 1 });
    assert_eq!(&*without_speculative_reply(&[1, 2, 3]), [1, 2, 3]);
}

#[test]
fn the_fields_of_a_driver_are_in_the_first_message_only_and_replace_nothing() {
    let fields = |document: Document| HelloFields::new(&super::encode(&document));
    let own = fields(doc! { "compression": ["zstd"] }).unwrap();
    let mut api = ServerApi::v1();
    (api.strict, api.deprecation_errors) = (Some(true), Some(true));
    let known = TopologyVersion { process_id: ObjectId::from_bytes([9; 12]), counter: 4 };
    let awaited = HelloRequest::awaitable(true, None, known, Duration::ZERO);
    let later = awaited.with_fields(own.clone());
    let handshake =
        Arc::new(Handshake { load_balanced: true, client: super::encode(&doc! {}).into() });
    let first = |api| HelloRequest::handshake(Arc::clone(&handshake), api, HandshakeOpcode::OpMsg);
    let auth = HelloAuth {
        sasl_supported_mechs: Some("admin.ada".into()),
        speculative_authenticate: Some(super::encode(&doc! {}).into()),
    };
    let first = first(Some(Arc::new(api))).with_auth(auth).with_fields(own);
    let compression = Bson::from(vec!["zstd"]);
    assert_eq!(decode(&first).get("compression"), Some(&compression));
    assert_eq!(decode(&later).get("compression"), None);
    let taken = [&first, &later].map(decode).into_iter().flatten();
    let taken = taken.map(|(key, _)| key).filter(|key| key != "compression");
    for key in taken.chain(["isMaster".into()]) {
        let error = fields(doc! { "comment": 1, &key: 1 }).unwrap_err();
        assert_eq!((error.option(), error.value()), ("hello", &*key), "{error}");
    }
    assert!(HelloFields::new(&[1, 2, 3]).is_err());
}
