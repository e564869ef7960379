//! Load shedding for a slow sink.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sdam_core::{
    deployment::{Input, RecordedInput},
    event::{Event, EventKind, EventName},
    ids::ServerId,
    server::ServerType,
    srv::SrvRecords,
};

use super::super::{EventQueue, shed::weight};
use crate::{
    sink::{EventSink, Interest},
    test_support::{
        Recorder, TOPOLOGY, address, at, checked_in, command, created, description, failed,
        heartbeat, opening, started,
    },
};

const SERVERS: u64 = 3;

fn succeeded(server: u64, size: usize) -> EventKind {
    EventKind::ServerHeartbeatSucceeded {
        heartbeat: heartbeat(server),
        duration: Duration::ZERO,
        reply: vec![0; size].into(),
    }
}

fn queue() -> EventQueue {
    EventQueue::new(TOPOLOGY, Interest::SDAM)
}

/// Fills the queue with more heartbeats than it accepts.
fn flood(queue: &EventQueue) {
    for round in 0..100_000 {
        for server in 1..=SERVERS {
            queue.push(at(round), started(server));
        }
        for server in 1..=SERVERS {
            queue.push(at(round), succeeded(server, 700));
        }
    }
}

/// Returns the totals that the `EventsDropped` events report.
fn totals(events: &[Event]) -> Vec<u64> {
    let totals = events.iter().filter_map(|event| match event.kind {
        EventKind::EventsDropped { total } => Some(total),
        _ => None,
    });
    totals.collect()
}

#[test]
fn above_the_mark_new_heartbeats_are_dropped_as_a_whole() {
    let queue = queue();
    flood(&queue);
    let most = EventQueue::SHED_BYTES + SERVERS as usize * 4096;
    assert!(queue.bytes() <= most, "{}", queue.bytes());
    let dropped = queue.pending().dropped();
    assert_eq!(dropped + queue.depth() as u64 - 1, 2 * SERVERS * 100_000);
    let sink = Recorder::shared();
    queue.drain_now(&sink);
    assert_eq!((queue.bytes(), queue.depth()), (0, 0));
    // Later heartbeats are again delivered as a whole.
    queue.push(at(100_000), started(1));
    queue.push(at(100_000), failed(1));
    queue.drain_now(&sink);
    let events = sink.events();
    assert_eq!(totals(&events), [0, dropped]);
    let mut running = BTreeMap::<ServerId, u64>::new();
    for event in &events {
        match &event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                assert_eq!(running.insert(heartbeat.server, event.seq), None);
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
            | EventKind::ServerHeartbeatFailed { heartbeat, .. } => {
                assert!(running.remove(&heartbeat.server).is_some());
            }
            _ => {}
        }
    }
    assert_eq!(running.len(), 0, "every delivered start has its end");
}

#[test]
fn started_heartbeats_end_after_the_mark_is_reached() {
    let queue = queue();
    queue.push(at(1), started(9));
    flood(&queue);
    queue.push(at(2), failed(9));
    queue.push(at(3), EventKind::TopologyClosed);
    assert!(queue.is_closed(), "a dropped heartbeat does not delay it");
    let sink = Recorder::shared();
    queue.drain_now(&sink);
    let events = sink.events();
    let [.., end, dropped, closed] = &events[..] else {
        unreachable!();
    };
    assert_eq!(end.kind.name(), EventName::ServerHeartbeatFailed);
    assert_eq!(end.kind.address(), Some(&address("host9")));
    assert_eq!(dropped.kind, EventKind::EventsDropped { total: queue.dropped() });
    assert_eq!(closed.kind, EventKind::TopologyClosed);
}

#[test]
fn other_events_are_dropped_at_the_limit() {
    let queue = queue();
    queue.push(at(1), started(1));
    for count in 0..200_000 {
        queue.push(at(count), opening(count));
    }
    assert!(queue.bytes() <= EventQueue::FULL_BYTES + 4096);
    assert!(queue.dropped() > 0);
    queue.push(at(200_000), failed(1));
    queue.push(at(200_000), EventKind::TopologyClosed);
    let sink = Recorder::shared();
    queue.drain_now(&sink);
    let names = sink.names();
    assert!(names.ends_with(&["ServerHeartbeatFailed", "EventsDropped", "TopologyClosed"]));
}

#[test]
fn new_selections_are_dropped_above_the_mark_until_half_is_delivered() {
    let queue = EventQueue::new(TOPOLOGY, Interest::ALL);
    assert!(queue.admits_operation(at(0)));
    flood(&queue);
    let before = queue.dropped();
    assert!(!queue.admits_operation(at(1)));
    assert_eq!(queue.dropped(), before + 1);
    queue.drain_now(&Recorder::shared());
    assert!(queue.admits_operation(at(2)));
}

#[test]
fn check_outs_are_dropped_above_the_mark_and_connections_are_not() {
    let queue = EventQueue::new(TOPOLOGY, Interest::ALL);
    flood(&queue);
    let push = |kind: EventKind| {
        let before = queue.depth();
        queue.push(at(200_000), kind);
        queue.depth() - before
    };
    assert_eq!(push(checked_in()), 0);
    assert_eq!(push(created()), 1);
    queue.drain_now(&Recorder::shared());
    queue.push(at(200_001), checked_in());
    let sink = Recorder::shared();
    queue.drain_now(&sink);
    assert_eq!(sink.events().last().unwrap().kind, checked_in());
}

#[test]
fn without_interest_in_starts_single_ends_are_dropped() {
    let name = EventName::ServerHeartbeatSucceeded;
    let queue = EventQueue::new(TOPOLOGY, name.into());
    flood(&queue);
    assert!(queue.bytes() <= EventQueue::SHED_BYTES + 4096);
    let sink = Recorder::interested_in(name.into());
    let delivered = queue.drain_now(&sink);
    assert_eq!(queue.dropped() + delivered, SERVERS * 100_000);
    assert_eq!(sink.interest(), name.into());
}

#[test]
fn an_event_weighs_as_much_as_what_only_it_keeps() {
    let (info, document) = command(&bson::doc! { "find": "x".repeat(1000) });
    assert_eq!(weight(&info.started(&document)), 512 + document.len());
    // Each of the three hosts counts as 128 bytes plus the length of its name.
    let hosts = ["a", "b", "c"].map(address).to_vec();
    let input = Input::LookedUp(Ok(SrvRecords::new(hosts, Duration::ZERO)));
    let recorded = RecordedInput { now: at(1), input, setup: None };
    assert_eq!(weight(&EventKind::Input(Arc::new(recorded))), 512 + 3 * (128 + "a:27017".len()));
    // The two hosts and the tag count as 64 bytes each, plus the length of their strings.
    let mut server = description(1, ServerType::RsPrimary);
    server.hosts = ["a", "b"].map(address).into();
    server.tags = [("dc", "ny")].into_iter().collect();
    let [previous, new] = [server.clone(), server].map(Arc::new);
    let changed = EventKind::ServerDescriptionChanged { previous, new };
    assert_eq!(weight(&changed), 512 + 512 + 2 * (64 + "a:27017".len()) + 64 + "dcny".len());
}
