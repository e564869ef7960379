//! A server on a real socket that pushes replies as fast as possible, and a sink that never
//! returns.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Mutex,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use bson::{oid::ObjectId, rawdoc};
use futures::executor::block_on;
use sdam::{Criteria, EventName, Topology};
use sdam_events::{queue::EventQueue, sink::sink_fn};
use sdam_sim::serve::Builder;
use sdam_transport::wire::OpMsg;

/// The time limit of every wait, for a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a mongos on loopback that streams without pause once the client allows it, and returns
/// its address. Sends a message to `closed_streams` for each stream that the client closes.
fn start_flooding_server(closed_streams: Sender<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The thread ends with the process, because it blocks on the test's next connection.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let closed_streams = closed_streams.clone();
            thread::spawn(move || flood(&stream.unwrap(), &closed_streams));
        }
    });
    address
}

fn flood(mut stream: &TcpStream, closed_streams: &Sender<()>) -> Option<()> {
    let process = ObjectId::from_bytes([1; 12]);
    let mut counter = 0_i64;
    let mut send = |mut stream: &TcpStream, to: i32, id: i32, more_to_come| {
        counter += 1;
        let version = rawdoc! { "processId": process, "counter": counter };
        let body = rawdoc! {
            "ok": 1, "helloOk": true, "msg": "isdbgrid", "minWireVersion": 0, "maxWireVersion": 17,
            "topologyVersion": version, "padding": "x".repeat(600),
        };
        let message = OpMsg {
            request_id: id,
            response_to: to,
            more_to_come,
            body: body.as_bytes(),
            ..OpMsg::default()
        };
        stream.write_all(message.encode().unwrap().as_bytes()).ok()
    };
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header).ok()?;
        let number = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut rest = vec![0; number(0) as usize - header.len()];
        stream.read_exact(&mut rest).ok()?;
        // exhaustAllowed
        if number(12) != 2013 || rest[2] & 1 == 0 {
            send(stream, number(4), 1, false)?;
            continue;
        }
        let mut last = number(4);
        while send(stream, last, last.wrapping_add(1), true).is_some() {
            last = last.wrapping_add(1);
        }
        closed_streams.send(()).ok()?;
        return None;
    }
}

#[test]
fn a_flood_of_replies_and_a_blocked_sink_use_bounded_memory_and_delay_no_selection() {
    let healthy = Builder::sharded(1).start().unwrap();
    let healthy_host = healthy
        .uri()
        .trim_start_matches("mongodb://")
        .trim_end_matches('/');
    let (closed_streams, streams) = mpsc::channel();
    let uri = format!(
        "mongodb://{},{healthy_host}/",
        start_flooding_server(closed_streams)
    );
    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .unwrap();
    // The worker that the sink blocks may be the one that waits for sockets. Another one takes over
    // only if it has something to do.
    host.spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let topology = Topology::builder(&uri)
        .unwrap()
        .sink(sink_fn(move |event| {
            if event.kind.name() == EventName::ServerHeartbeatSucceeded {
                // Nothing is ever sent, so this returns when the test drops the sender.
                assert!(blocked.lock().unwrap().recv().is_err());
            }
        }))
        .start(runtime)
        .unwrap();
    // Each is a burst that was cut short.
    for stream in 0..5 {
        assert_eq!(streams.recv_timeout(PATIENCE), Ok(()), "stream {stream}");
        drop(block_on(topology.select(&Criteria::write())).unwrap());
    }
    let queue = topology.events();
    assert!(queue.depth() < 2000, "{}", queue.depth());
    assert!(queue.bytes() < EventQueue::SHED_BYTES, "{}", queue.bytes());
    let began = Instant::now();
    block_on(topology.close());
    let took = began.elapsed();
    assert!(took >= Topology::DELIVERY_PATIENCE, "{took:?}");
    assert!(took < Topology::DELIVERY_PATIENCE + PATIENCE, "{took:?}");
    drop(unblock);
    host.shutdown_background();
}
