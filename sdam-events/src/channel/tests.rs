use std::sync::Arc;

use futures::{Stream, StreamExt, executor::block_on, stream::FusedStream};
use sdam_core::event::EventKind;

use super::{EventStream, bounded, unbounded};
use crate::{
    dispatch::Dispatcher,
    queue::EventQueue,
    sink::{EventSink, Interest},
    test_support::{TOPOLOGY, at, failed, opening, started},
};

fn queue() -> Arc<EventQueue> {
    Arc::new(EventQueue::new(TOPOLOGY, Interest::SDAM))
}

fn read(stream: &mut EventStream) -> Vec<u64> {
    std::iter::from_fn(|| stream.try_next()).map(|event| event.seq).collect()
}

#[test]
fn delivery_goes_on_after_a_stream_is_dropped() {
    let queue = queue();
    let (sink, stream) = unbounded();
    drop(stream);
    queue.push(at(1), opening(1));
    assert_eq!(queue.drain_now(&sink), 1);
    assert_eq!(queue.sink_failed(), None);
}

#[test]
fn a_full_channel_drops_whole_heartbeats_only() {
    // The end of a heartbeat is delivered if its start was (J-31).
    let queue = queue();
    let (sink, mut stream) = bounded(2);
    queue.push(at(1), EventKind::TopologyOpening); // 1, kept
    queue.push(at(2), started(1)); // 2, kept: there is one place left
    queue.push(at(3), started(2)); // 3, dropped
    queue.push(at(4), opening(3)); // 4, kept because it is not a heartbeat
    queue.push(at(5), failed(1)); // 5, kept because its start was kept
    queue.push(at(6), failed(2)); // 6, dropped because its start was dropped
    queue.drain_now(&sink);
    assert_eq!((stream.waiting(), stream.size_hint()), (4, (4, None)));
    assert_eq!(read(&mut stream), [1, 2, 4, 5]);
    assert_eq!(stream.dropped(), 2);

    queue.push(at(7), started(2)); // 7, kept: there is room again
    queue.push(at(8), failed(2)); // 8
    queue.drain_now(&sink);
    assert_eq!(read(&mut stream), [7, 8]);
    assert_eq!(stream.dropped(), 2);
    drop(sink);
    assert_eq!(stream.size_hint(), (0, Some(0)));
}

#[test]
fn one_sink_receives_the_events_of_several_topologies() {
    let (sink, mut stream) = unbounded();
    let sink: Arc<dyn EventSink> = Arc::new(sink);
    let [first, second] = [queue(), queue()];
    let deliveries =
        [&first, &second].map(|queue| Dispatcher::new(Arc::clone(queue), Arc::clone(&sink)));
    drop(sink);
    first.push(at(1), EventKind::TopologyClosed);
    second.push(at(2), EventKind::TopologyClosed);
    for delivery in deliveries {
        block_on(delivery);
        assert!(block_on(stream.next()).is_some());
    }
    assert!(block_on(stream.next()).is_none() && stream.is_terminated());
}
