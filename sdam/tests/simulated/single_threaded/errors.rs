//! Errors reported by operations.

use super::*;

fn insert() -> Vec<u8> {
    bytes(&doc! { "insert": "things", "$db": "test" })
}

#[test]
fn i_38_x_6_x_45_a_primary_that_stepped_down_makes_the_next_selection_scan() {
    let (harness, mut topology, _) = scanned();
    let server = id(&topology, "a");
    harness.serve("a", member(false, "a b c"));
    let mut new = member(true, "a b c");
    new.insert("setVersion", 2);
    harness.serve("b", new);
    harness.change("a", |server| server.other = reply(&refusal(10_107)));
    harness.advance(1_000);
    let error = ready(topology.run_command(server, &insert(), None)).unwrap_err();
    assert_eq!(error.outcome(), Some(ErrorOutcome::MarkedUnknown));
    assert_eq!(error.reply(), Some(&*bytes(&refusal(10_107))), "the operation gets its reply");
    assert_eq!(harness.log(), "a insert", "no check has been made");
    assert!(topology.is_stale());
    assert_eq!(kind(&topology, "a"), ServerType::Unknown);
    assert_eq!(select(&mut topology), Ok("b".into()));
    // The connection is kept (I-36), and the server stays known.
    assert!(!harness.log().contains("connect"));
    assert_eq!(kind(&topology, "a"), ServerType::RsSecondary);
}

#[test]
fn i_36_the_own_hello_of_a_connection_decides_whether_its_pool_is_cleared() {
    let (harness, mut topology, _) = scanned();
    let server = id(&topology, "a");
    harness.change("a", |server| server.other = reply(&refusal(10_107)));
    for _ in 0..2 {
        // At the second error, the description is Unknown and has no wire version.
        let error = ready(topology.run_command(server, &insert(), None)).unwrap_err();
        assert_eq!(error.outcome(), Some(ErrorOutcome::MarkedUnknown));
        assert_eq!(kind(&topology, "a"), ServerType::Unknown);
        assert_eq!(topology.connection(server).unwrap().hello().wire_versions.max, 21);
    }
}

#[test]
fn o_36_a_command_that_the_server_does_not_accept_by_its_own_hello_is_not_sent() {
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|_| ());
    let mut small = member(true, "a b c");
    small.extend(doc! { "maxBsonObjectSize": 1000, "maxMessageSizeBytes": 2000 });
    harness.serve("a", small);
    select(&mut topology).unwrap();
    harness.log();
    let (server, before) = (id(&topology, "a"), topology.description());
    for (length, limit) in [(3_000, " 2000 "), (18_000, " 17384 ")] {
        let insert = bytes(&doc! { "insert": "x".repeat(length), "$db": "test" });
        let error = ready(topology.run_command(server, &insert, None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.message().contains(limit), "{error}");
    }
    ready(topology.run_command(server, &insert(), None)).unwrap();
    assert_eq!(harness.log(), "a insert");
    assert_eq!(topology.description(), before);
}

#[test]
fn i_39_an_error_of_a_recovering_node_causes_no_check() {
    let (harness, mut topology, _) = scanned();
    for (name, code) in [("a", 11_602), ("b", 13_436), ("c", 189)] {
        let server = id(&topology, name);
        harness.change(name, |server| server.other = reply(&refusal(code)));
        ready(topology.run_command(server, &insert(), None)).unwrap_err();
        assert_eq!(kind(&topology, name), ServerType::Unknown);
        assert!(!topology.is_stale(), "{code}");
        ready(topology.settle());
    }
    assert!(!harness.log().contains("hello"));
}

#[test]
fn i_38_settle_checks_the_server_if_immediate_checks_are_enabled() {
    let harness = Harness::default();
    let (mut topology, _) = harness.replica_set(|options| {
        options.deviations.single_threaded_immediate_check = true;
    });
    select(&mut topology).unwrap();
    harness.advance(1_000);
    let server = id(&topology, "a");
    harness.serve("a", member(false, "a b c"));
    harness.change("a", |server| server.other = reply(&refusal(10_107)));
    ready(topology.run_command(server, &insert(), None)).unwrap_err();
    assert!(!topology.is_stale());
    harness.log();
    ready(topology.settle());
    assert_eq!(harness.log(), "a hello");
    assert_eq!(kind(&topology, "a"), ServerType::RsSecondary);
    ready(topology.settle());
    assert_eq!(harness.log(), "");
}

#[test]
fn o_50_a_reply_without_ok_or_that_is_not_bson_is_an_error_and_closes_the_connection() {
    let framed = vec![8, 0, 0, 0, 0x77, b'x', 0, 0];
    for body in [bytes(&doc! {}), bytes(&doc! { "n": 1 }), framed] {
        let (harness, mut topology, _) = scanned();
        let server = id(&topology, "a");
        harness.change("a", |server| server.other = fixed_reply(Some(body)));
        let error = ready(topology.run_command(server, &insert(), None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(error.reply(), None);
        assert_eq!(error.outcome(), Some(ErrorOutcome::Irrelevant));
        assert_eq!(kind(&topology, "a"), ServerType::RsPrimary);
        assert_eq!(harness.open(), 2);
    }
}

#[test]
fn o_50_a_command_that_has_run_returns_its_errors_with_the_reply() {
    let (harness, mut topology, _) = scanned();
    let server = id(&topology, "a");
    let mut body = doc! { "ok": 1, "n": 0, "writeErrors": [
        { "index": 3, "code": 11000, "errmsg": "duplicate key" },
    ] };
    harness.change("a", |server| server.other = reply(&body));
    let answered = ready(topology.run_command(server, &insert(), None)).unwrap();
    let errors = answered.write_errors();
    let [error] = &errors[..] else { panic!("one write has failed: {errors:?}") };
    assert_eq!((error.index, error.code), (3, Some(11000)));
    assert_eq!(&*error.message, "duplicate key");
    assert_eq!(answered.write_concern_error(), None);
    // Unlike write errors, a `writeConcernError` also changes the topology (I-32).
    body.insert("writeConcernError", doc! { "code": 91, "errmsg": "bye" });
    harness.change("a", |server| server.other = reply(&body));
    let answered = ready(topology.run_command(server, &insert(), None)).unwrap();
    let error = answered.write_concern_error().unwrap();
    assert_eq!((error.code(), error.message()), (Some(91), "bye"));
    assert_eq!(error.outcome(), Some(ErrorOutcome::Cleared));
    assert_eq!(kind(&topology, "a"), ServerType::Unknown);
}

#[test]
fn h_7_an_operation_error_starts_no_cooldown_but_a_failed_check_does() {
    let harness = Harness::default();
    let (mut topology, _) = harness.topology("a", |_| ());
    harness.serve("a", mongos());
    select(&mut topology).unwrap();
    let server = id(&topology, "a");
    harness.kill("a");
    ready(topology.run_command(server, &insert(), None)).unwrap_err();
    harness.advance(1_000);
    harness.log();
    select(&mut topology).unwrap_err();
    assert_eq!(harness.log(), "a connect");
    harness.advance(1_000);
    select(&mut topology).unwrap_err();
    assert_eq!(harness.log(), "");
}
