//! Tests of the fail points failCommand and onPrimaryTransactionalWrite (M-46).

use bson::{Bson, Document, Uuid, doc};

use crate::support::{Fixture, awaiting, code, hello, is_ok, ping};

fn configure(mode: impl Into<Bson>, data: Document) -> Document {
    doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" }
}

#[test]
fn m_46_errors_of_overload_have_the_base_of_backoffs_while_the_parameter_is_set() {
    let mut fixture = Fixture::standalone();
    let connection = fixture.connect(0);
    let mut backoff = |labels: &[&str], millis: i32| {
        let set = doc! { "setParameter": 1, "externalClientBaseBackoffMS": millis, "$db": "admin" };
        assert!(is_ok(&fixture.call(connection, &set)));
        let data = doc! { "failCommands": ["ping"], "errorCode": 462, "errorLabels": labels };
        assert!(is_ok(&fixture.call(connection, &configure("alwaysOn", data))));
        fixture.call(connection, &ping()).get("baseBackoffMS").cloned()
    };
    assert_eq!(backoff(&["SystemOverloadedError"], 50), Some(50_i64.into()));
    assert_eq!(backoff(&["RetryableError"], 50), None);
    assert_eq!(backoff(&["SystemOverloadedError"], 0), None);
    let unknown = doc! { "setParameter": 1, "other": 1, "$db": "admin" };
    assert_eq!(code(&fixture.call(connection, &unknown)), 72);
}

#[test]
fn m_46_a_blocked_stream_continues_after_the_block() {
    let mut fixture = Fixture::replica_set(1);
    let connection = fixture.connect(0);
    let known = fixture.call(connection, &hello());
    fixture.run("failpoint 0 commands=hello times=1 block=700");
    fixture.send_exhaust(connection, &awaiting(&known, 1000));
    fixture.advance_millis(1699);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    assert!(fixture.receive(connection).more_to_come);
    fixture.advance_millis(1000);
    assert!(fixture.receive(connection).more_to_come);
}

#[test]
fn m_46_every_reply_of_a_stream_counts() {
    let mut fixture = Fixture::replica_set(1);
    fixture.run("failpoint 0 commands=hello skip=2 code=91");
    let (connection, ..) = fixture.stream(0, 1000);
    fixture.advance_millis(1000);
    assert!(is_ok(&fixture.receive(connection).body));
    assert_eq!(code(&fixture.receive(connection).body), 91);
}

#[test]
fn m_46_a_struck_write_closes_its_connection_after_it_has_run_or_with_an_error_before() {
    for (data, runs) in [(doc! {}, true), (doc! { "failBeforeCommitExceptionCode": 1 }, false)] {
        let mut fixture = Fixture::replica_set(1);
        let configure = doc! {
            "configureFailPoint": "onPrimaryTransactionalWrite",
            "mode": { "times": 1 },
            "data": &data,
            "$db": "admin",
        };
        assert!(is_ok(&fixture.call_member(0, &configure)));
        let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "d" };
        // The fail point affects only writes with a transaction number.
        let mut other = insert.clone();
        other.insert("insert", "other");
        assert!(is_ok(&fixture.call_member(0, &other)));
        let mut numbered = insert;
        numbered.extend(doc! { "lsid": { "id": Uuid::from_bytes([1; 16]) }, "txnNumber": 1_i64 });
        let connection = fixture.connect(0);
        fixture.send(connection, &numbered);
        assert!(fixture.is_closed(connection));
        let count = doc! { "count": "c", "$db": "d" };
        let count = fixture.call_member(0, &count);
        assert_eq!(count.get_i32("n").unwrap(), i32::from(runs), "{data}");
        // The retry returns the result of the first attempt.
        let reply = fixture.call_member(0, &numbered);
        assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply}");
    }
}

#[test]
fn a_fail_point_that_cannot_be_simulated_is_refused() {
    let mut fixture = Fixture::standalone();
    let other = doc! { "configureFailPoint": "other", "mode": "off", "$db": "admin" };
    assert_eq!(code(&fixture.call_member(0, &other)), 266);
    for request in [
        configure(doc! { "activationProbability": 0.5 }, doc! {}),
        configure("sometimes", doc! {}),
        configure("alwaysOn", doc! { "failCommands": ["ping"], "blockConnection": true }),
    ] {
        assert_eq!(code(&fixture.call_member(0, &request)), 2);
    }
}
