//! Pools and descriptions after a failed check, an error from an operation, or a member's removal.

use std::time::Duration;

use bson::{Document, doc};
use sdam::{
    Criteria, Error, ServerType,
    error::{ErrorOutcome, ErrorReport, Stage},
    events::EventName,
    pool::Generation,
    runtime::Instant,
};
use sdam_core::reply;

use super::Harness;

/// F-56: the event of a failed check precedes the events of its effects.
#[test]
fn the_event_of_a_failed_check_precedes_the_events_of_its_effects() {
    let harness = Harness::start("a/?replicaSet=rs");
    let mark = harness.events().len();
    harness.kill_primary();
    harness.wait_for_known(2);
    let expected = [
        EventName::ServerHeartbeatFailed,
        EventName::ServerDescriptionChanged,
        EventName::TopologyDescriptionChanged,
        EventName::PoolCleared,
    ];
    let names: Vec<_> = harness.events()[mark..]
        .iter()
        .map(|event| event.kind.name())
        .skip_while(|name| *name != expected[0])
        .take(4)
        .collect();
    assert_eq!(names, expected);
}

/// F-66, F-68, I-5: the call that reports an error clears the pool before it returns, with the
/// error as the reason. So the pool is already cleared when the connection is checked in, and
/// failing check-outs can name the reason. The order of the pool's own events is the responsibility
/// of the pool.
#[test]
fn a_pool_is_cleared_before_the_report_of_the_error_returns() {
    let harness = Harness::start("a/?replicaSet=rs");
    let criteria = Criteria::write();
    let selected = harness.sim.block_on(harness.topology.select(&criteria));
    let selected = selected.unwrap();
    let broken = Error::network(Stage::Operation, "the socket broke");
    let error = ErrorReport::new(Generation::FIRST, broken);
    let outcome = harness.topology.reporter(selected.id()).handle_error(&error);
    assert_eq!(outcome, ErrorOutcome::Cleared);
    let generation = harness.topology.reporter(selected.id()).generation(None);
    assert_eq!(generation, Some(Generation::FIRST.next()));
    let calls = harness.pools.calls();
    let call = calls.last().unwrap();
    assert_eq!(call.address, *selected.address());
    let cause = &call.clear.as_ref().unwrap().cause;
    assert_eq!(cause.message(), "the socket broke");
    let again = harness.topology.reporter(selected.id()).handle_error(&error);
    assert_eq!(again, ErrorOutcome::Stale);
    assert_eq!(harness.pools.calls().len(), calls.len());
}

/// F-80: an operation's handshake with an Unknown server makes the server known again, although the
/// monitor receives nothing new on its stream.
#[test]
fn a_pooled_handshake_makes_a_lost_streaming_server_known_again() {
    let harness = Harness::start("a/?replicaSet=rs");
    let (host, _) = harness.secondary();
    let id = harness.server(host).id;
    let checks = harness.checks(host, Instant::EPOCH);
    let hello = &checks.last().unwrap().1;
    assert!(
        Document::from_reader(&**hello).is_ok_and(|hello| hello.contains_key("topologyVersion"))
    );
    let stepped_down = doc! { "ok": 0, "code": 189, "errmsg": "the primary stepped down" };
    let error = reply::error(&stepped_down.to_vec().unwrap(), Stage::Operation).unwrap();
    let report = ErrorReport::new(Generation::FIRST, error);
    let outcome = harness.topology.reporter(id).handle_error(&report);
    assert_eq!(outcome, ErrorOutcome::MarkedUnknown);
    assert_eq!(harness.server(host).server_type, ServerType::Unknown);
    let accepted = harness.topology.reporter(id).handle_handshake(Generation::FIRST, &**hello);
    accepted.unwrap();
    let found = harness.server(host);
    assert_eq!(found.server_type, ServerType::RsSecondary);
    assert!(found.rtt.unwrap().average > Duration::ZERO);
}
