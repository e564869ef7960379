//! Checks that pushing and delivering events allocates nothing once the buffers have grown.

use sdam_core::{
    address::ServerAddress,
    event::{ConnectionId, EventKind, EventName, Heartbeat},
    ids::{ObjectId, ServerId},
    time::Instant,
};
use sdam_events::{
    queue::EventQueue,
    sink::{Interest, sink_fn},
};

const BURST: u64 = 1000;

fn burst(queue: &EventQueue, heartbeat: &Heartbeat) {
    for count in 0..BURST {
        let kind = EventKind::ServerHeartbeatStarted(heartbeat.clone());
        queue.push(Instant::from_nanos(count), kind);
    }
}

fn heartbeat() -> Heartbeat {
    let connection = ConnectionId { driver: 1, server: Some(1) };
    let address = ServerAddress::new("a", 27017);
    Heartbeat::new(ServerId::from_u64(1), address, connection, true)
}

#[test]
fn a_queue_at_constant_length_does_not_allocate() {
    let queue = EventQueue::new(ObjectId::default(), Interest::SDAM);
    let sink = sink_fn(|_| {});
    let heartbeat = heartbeat();
    // Lets both buffers grow to their final size.
    for _ in 0..2 {
        burst(&queue, &heartbeat);
        assert_eq!(queue.drain_now(&sink), BURST);
    }
    let allocations = allocation_counter::measure(|| {
        burst(&queue, &heartbeat);
        assert_eq!(queue.drain_now(&sink), BURST);
    });
    assert_eq!(allocations.count_total, 0);
}

#[test]
fn a_queue_without_interest_does_not_allocate() {
    let heartbeat = heartbeat();
    let allocations = allocation_counter::measure(|| {
        let queue = EventQueue::new(ObjectId::default(), Interest::NONE);
        burst(&queue, &heartbeat);
        queue.push_with(Instant::EPOCH, EventName::TopologyOpening, || EventKind::TopologyOpening);
        assert_eq!((queue.depth(), queue.pending().high_water()), (0, 0));
    });
    assert_eq!(allocations.count_total, 0);
}
