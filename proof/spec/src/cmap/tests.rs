use sdam_core::{
    address::ServerAddress,
    event::{ConnectionClosedReason, ConnectionId, EventKind},
    ids::ServerId,
};
use serde_json::{Value, json};

use super::format::{ExpectedEvent, File, Operation};
use crate::fields::read;

fn closed() -> EventKind {
    EventKind::ConnectionClosed {
        server: ServerId::from_u64(1),
        address: ServerAddress::new("a", 1),
        connection: ConnectionId { driver: 2, server: None },
        reason: ConnectionClosedReason::Stale,
        error: None,
    }
}

#[test]
fn the_fields_of_an_expected_event_are_a_part_of_the_actual_ones() {
    let check = |expected: Value, passes: bool| {
        let event = read::<ExpectedEvent>(&expected).unwrap();
        assert_eq!(event.compare(&closed()).is_ok(), passes, "{expected}");
    };
    let event = "ConnectionClosed";
    check(json!({ "type": event }), true);
    check(json!({ "type": "ConnectionReady" }), false);
    check(json!({ "type": event, "connectionId": 2, "reason": "stale" }), true);
    check(json!({ "type": event, "connectionId": 42, "address": 42 }), true);
    check(json!({ "type": event, "connectionId": 1 }), false);
    check(json!({ "type": event, "reason": "idle" }), false);
    check(json!({ "type": event, "duration": 42 }), false);
}

#[test]
fn events_and_operations_that_no_pool_has_are_refused() {
    let event = read::<ExpectedEvent>(&json!({ "type": "PoolReady" }));
    assert_eq!(event.unwrap_err(), "PoolReady is not an event of a pool");
    let operation = |operation: Value| read::<Operation>(&operation).unwrap_err();
    let error = operation(json!({ "name": "resize" }));
    assert!(error.starts_with("unknown variant `resize`"), "{error}");
    let error = operation(json!({ "name": "checkOut", "connection": "a" }));
    assert!(error.contains("unknown field `connection`"), "{error}");
    let file = json!({
        "version": 2, "style": "unit", "description": "", "operations": [], "events": [],
    });
    assert_eq!(File::read(&file).unwrap_err(), "version is 2, expected 1");
}
