//! Measures what an event costs its producer and its consumer: `cargo bench -p sdam-events`.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use criterion::{BatchSize, Criterion, Throughput};
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

fn started() -> EventKind {
    let connection = ConnectionId { driver: 1, server: Some(1) };
    let address = ServerAddress::new("a", 27017);
    EventKind::ServerHeartbeatStarted(Heartbeat::new(
        ServerId::from_u64(1),
        address,
        connection,
        true,
    ))
}

fn queue(interest: Interest) -> EventQueue {
    EventQueue::new(ObjectId::default(), interest)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let kind = started();

    let uninteresting = queue(Interest::NONE);
    criterion.bench_function("push without interest", |bencher| {
        bencher.iter(|| {
            black_box(&uninteresting).push_with(
                Instant::EPOCH,
                EventName::ServerHeartbeatStarted,
                || kind.clone(),
            );
        });
    });

    let mut group = criterion.benchmark_group("1000 events");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("push and deliver", |bencher| {
        let (queue, sink) = (
            queue(Interest::SDAM),
            sink_fn(|event| {
                black_box(event.seq);
            }),
        );
        bencher.iter(|| {
            for _ in 0..1000 {
                queue.push(Instant::EPOCH, kind.clone());
            }
            queue.drain_now(&sink)
        });
    });
    group.bench_function("push while another thread delivers", |bencher| {
        let queue = Arc::new(queue(Interest::SDAM));
        let done = Arc::new(AtomicBool::new(false));
        let consumer = thread::spawn({
            let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
            let sink = sink_fn(|event| {
                black_box(event.seq);
            });
            move || {
                while !done.load(Ordering::Relaxed) {
                    queue.drain_now(&sink);
                }
            }
        });
        bencher.iter_batched(
            || (),
            |()| {
                for _ in 0..1000 {
                    queue.push(Instant::EPOCH, kind.clone());
                }
            },
            BatchSize::SmallInput,
        );
        done.store(true, Ordering::Relaxed);
        drop(consumer.join());
    });
    group.finish();
    criterion.final_summary();
}
