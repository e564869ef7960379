use futures::StreamExt as _;
use loom::{future::block_on, thread};
use sdam_core::event::Event;

use crate::{
    channel,
    sink::EventSink as _,
    sync::explore,
    test_support::{TOPOLOGY, at, opening},
};

#[test]
fn a_stream_never_counts_fewer_events_than_it_has_still_to_deliver() {
    explore(None, || {
        let (sink, mut events) = channel::unbounded();
        let emits = thread::spawn(move || {
            for seq in 1..=2 {
                sink.emit(&Event::new(seq, at(1), TOPOLOGY, opening(seq)));
            }
        });
        let mut received = Vec::new();
        while let Some(event) = block_on(events.next()) {
            received.push(event.seq);
            assert!(events.waiting() <= 2 - received.len(), "the count has fallen below zero");
        }
        emits.join().unwrap();
        assert_eq!(received, [1, 2]);
        assert_eq!((events.waiting(), events.dropped()), (0, 0));
    });
}
