//! Tests that violate one invariant each, and check that the violation is detected.

use std::sync::Arc;

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    event::{ConnectionId, Event, EventKind, Heartbeat, Selection, SelectionFailure},
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    pool::PoolClear,
    server::{Rtt, ServerDescription, ServerType},
    time::Instant,
    topology::{DepartureReason, TopologyDescription, TopologyType},
};

use super::*;

const ID: ServerId = ServerId::from_u64(1);

fn address() -> ServerAddress {
    ServerAddress::new("a", 27017)
}

fn server(server_type: ServerType, counter: i64) -> ServerDescription {
    let mut server = ServerDescription::unknown(ID, address());
    server.server_type = server_type;
    server.rtt = server_type.is_available().then(Rtt::default);
    server.topology_version =
        Some(TopologyVersion { process_id: ObjectId::from_bytes([1; 12]), counter });
    server
}

fn lost() -> ServerDescription {
    let error = Error::new(ErrorKind::Network, Stage::Hello, "reset");
    ServerDescription::failed(ID, address(), error, Instant::EPOCH)
}

fn clear() -> PoolClear {
    let error = Error::new(ErrorKind::Network, Stage::Hello, "reset");
    PoolClear::new(Generation::from_u64(1), error)
}

fn topology(servers: impl IntoIterator<Item = ServerDescription>) -> Arc<TopologyDescription> {
    Arc::new(TopologyDescription::new(TopologyType::Unknown, servers))
}

fn changed(previous: ServerDescription, new: ServerDescription) -> [EventKind; 2] {
    [
        EventKind::ServerDescriptionChanged {
            previous: Arc::new(previous.clone()),
            new: Arc::new(new.clone()),
        },
        EventKind::TopologyDescriptionChanged {
            previous: topology([previous]),
            new: topology([new]),
        },
    ]
}

fn heartbeat() -> Heartbeat {
    let connection = ConnectionId { driver: 1, server: None };
    Heartbeat::new(ID, address(), connection, false)
}

/// Returns a record in which a server is discovered, fails and is removed.
fn record() -> (Vec<EventKind>, PoolCalls) {
    let unknown = || ServerDescription::unknown(ID, address());
    let found = || server(ServerType::Standalone, 5);
    let mut kinds = vec![
        EventKind::TopologyOpening,
        EventKind::TopologyDescriptionChanged {
            previous: Arc::default(),
            new: topology([unknown()]),
        },
        EventKind::ServerOpening { server: ID, address: address() },
        EventKind::ServerHeartbeatStarted(heartbeat()),
        EventKind::ServerHeartbeatSucceeded {
            heartbeat: heartbeat(),
            duration: std::time::Duration::ZERO,
            reply: Vec::new().into(),
        },
        EventKind::PoolReady { server: ID, address: address() },
    ];
    kinds.extend(changed(unknown(), found()));
    kinds.extend(changed(found(), lost()));
    kinds.extend([
        EventKind::PoolCleared { server: ID, address: address(), clear: clear() },
        EventKind::ServerClosed { server: ID, address: address(), reason: DepartureReason::Closed },
        EventKind::TopologyDescriptionChanged { previous: topology([lost()]), new: Arc::default() },
        EventKind::TopologyClosed,
    ]);
    let calls = vec![(ID, PoolCall::Ready), (ID, PoolCall::Clear(clear())), (ID, PoolCall::Close)];
    (kinds, calls)
}

fn violated_oracle(change: impl FnOnce(&mut Vec<EventKind>, &mut PoolCalls)) -> Option<Oracle> {
    let (mut kinds, mut calls) = record();
    change(&mut kinds, &mut calls);
    let number = |(index, kind)| {
        let (seq, at) = (index as u64 + 1, Instant::from_millis(index as u64));
        Event::new(seq, at, ObjectId::default(), kind)
    };
    let events: Vec<Event> = kinds.into_iter().enumerate().map(number).collect();
    audit(&events, &calls).err().map(|violation| violation.oracle)
}

#[test]
fn a_valid_record_passes_and_every_kind_of_error_is_found() {
    assert_eq!(violated_oracle(|_, _| {}), None);
    let without = |index: usize| violated_oracle(|kinds, _| drop(kinds.remove(index)));
    assert_eq!(without(0), Some(Oracle::Continuity), "opening");
    assert_eq!(without(3), Some(Oracle::Heartbeats), "start");
    assert_eq!(without(4), Some(Oracle::Pools), "success");
    assert_eq!(without(5), Some(Oracle::Pools), "ready");
    assert_eq!(without(7), Some(Oracle::Continuity), "topology changed");
    assert_eq!(without(10), Some(Oracle::Pools), "clear");
    assert_eq!(without(11), Some(Oracle::Continuity), "closed");
    assert_eq!(without(13), Some(Oracle::Continuity), "the end");
    let twice = |index: usize| {
        violated_oracle(|kinds, _| {
            let kind = kinds[index].clone();
            kinds.insert(index, kind);
        })
    };
    assert_eq!(twice(3), Some(Oracle::Cadence), "a check in a check");
    assert_eq!(twice(4), Some(Oracle::Heartbeats), "ended twice");
    assert_eq!(twice(5), Some(Oracle::Pools), "ready twice");
    assert_eq!(twice(6), Some(Oracle::Continuity), "the same change twice");
    assert_eq!(twice(10), Some(Oracle::Sequence), "a repeated generation");
}

#[test]
fn pool_calls_that_differ_from_events_are_found() {
    assert_eq!(violated_oracle(|_, calls| drop(calls.pop())), Some(Oracle::Pools));
    assert_eq!(violated_oracle(|_, calls| drop(calls.remove(1))), Some(Oracle::Pools));
}

#[test]
fn an_older_topology_version_must_not_replace_a_newer_one() {
    // An older topology version must not replace a newer one from the same process.
    let found = violated_oracle(|kinds, _| {
        let older = server(ServerType::Standalone, 4);
        let newer = server(ServerType::Standalone, 5);
        kinds.splice(8..10, changed(newer, older.clone()));
        kinds.splice(10..10, changed(older, lost()));
    });
    assert_eq!(found, Some(Oracle::Freshness));
}

#[test]
fn available_servers_must_have_a_round_trip_time() {
    // A server that changes to another known type keeps its round-trip time (C-20).
    let found = violated_oracle(|kinds, _| {
        let found = server(ServerType::Standalone, 5);
        let mut without_round_trip_time = server(ServerType::Standalone, 6);
        without_round_trip_time.rtt = None;
        kinds.splice(8..10, changed(found, without_round_trip_time.clone()));
        kinds.splice(10..10, changed(without_round_trip_time, lost()));
    });
    assert_eq!(found, Some(Oracle::RoundTrip));
}

#[test]
fn event_numbers_must_have_no_gap_and_time_must_be_monotonic() {
    let event = |seq, millis| {
        let (at, kind) = (Instant::from_millis(millis), EventKind::TopologyOpening);
        Event::new(seq, at, ObjectId::default(), kind)
    };
    let found = |events: &[Event]| audit(events, &[]).unwrap_err().oracle;
    assert_eq!(found(&[event(1, 0), event(3, 0)]), Oracle::Sequence);
    assert_eq!(found(&[event(1, 1), event(2, 0)]), Oracle::Continuity);
}

#[test]
fn every_started_selection_ends_once_and_waits_at_most_once() {
    // A selection waits at most once, and succeeds or fails exactly once (K-7, K-8).
    let selection = Arc::new(Selection::new("write operation"));
    let step = |make: fn(Arc<Selection>) -> EventKind| make(Arc::clone(&selection));
    let started =
        |selection| EventKind::ServerSelectionStarted { selection, description: Arc::default() };
    let waiting = |selection| EventKind::ServerSelectionWaiting {
        selection,
        description: Arc::default(),
        remaining: None,
    };
    let failed = |selection| EventKind::ServerSelectionFailed {
        selection,
        description: Arc::default(),
        reason: SelectionFailure::Closed,
        failure: "closed".into(),
        duration: std::time::Duration::ZERO,
    };
    let steps = [step(started), step(waiting), step(failed)];
    let check = |order: &[usize], valid: bool| {
        let found = violated_oracle(|kinds, _| {
            let steps = order.iter().map(|index| steps[*index].clone());
            kinds.splice(8..8, steps);
        });
        let expected = (!valid).then_some(Oracle::Selection);
        assert_eq!(found, expected, "{order:?}");
    };
    check(&[0, 1, 2], true);
    check(&[0, 2], true);
    check(&[0, 2, 0, 2], true);
    check(&[0, 1], false);
    check(&[0, 1, 1, 2], false);
    check(&[0, 1, 2, 2], false);
    check(&[0, 0, 2], false);
    check(&[2], false);
    check(&[0, 2, 1], false);
}
