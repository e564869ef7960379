//! The events of single-threaded mode, and its behaviour behind a load balancer.

use sdam::{
    error::{ErrorReport, Stage},
    options::DriverInfo,
};
use sdam_events::sink::sink_fn;

use super::*;

#[test]
fn j_16_j_35_events_come_in_order_and_by_the_end_of_each_call() {
    let harness = Harness::default();
    let mut hello = mongos();
    hello.insert("serviceId", bson::oid::ObjectId::from_bytes([1; 12]));
    harness.serve("a", hello);
    let (mut topology, mut events) = harness.topology("a", |_| ());
    assert_eq!(events.try_next().unwrap().topology, topology.id());
    assert_eq!(summaries(&mut events), ["TopologyUnknown", "Opening a"]);
    select(&mut topology).unwrap();
    assert_eq!(
        summaries(&mut events),
        [
            "SelectionStarted",
            "HeartbeatStarted a",
            "HeartbeatSucceeded a",
            "PoolReady a",
            "Mongos a",
            "TopologySharded",
            "SelectionSucceeded a",
        ]
    );
    drop(topology);
    // Closing publishes the closed event of each server, then those of the topology (D-7, J-20).
    assert_eq!(summaries(&mut events), ["Closed a", "TopologyUnknown", "TopologyClosed"]);
}

#[test]
fn j_9_j_10_j_35_h_16_heartbeats_are_never_awaited_and_their_duration_ends_with_the_reply() {
    let harness = Harness::default();
    let (mut topology, mut events) = harness.replica_set(|_| ());
    harness.change("b", |server| server.delay = Duration::from_millis(25));
    for _ in 0..3 {
        select(&mut topology).unwrap();
        harness.advance(70_000);
    }
    let mut seen = 0;
    for event in drain(&mut events) {
        match event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => assert!(!heartbeat.awaited),
            EventKind::ServerHeartbeatSucceeded { heartbeat, duration, .. } => {
                seen += 1;
                assert!(!heartbeat.awaited);
                assert!(heartbeat.connection.server.is_some());
                let expected = if heartbeat.address == address("b") { 25 } else { 1 };
                assert_eq!(duration.as_millis(), expected);
            }
            _ => {}
        }
    }
    assert_eq!(seen, 9);
    let rtt = topology.description().server(&address("b")).unwrap().rtt;
    assert_eq!(rtt.unwrap().average.as_millis(), 25);
}

#[test]
fn sinks_are_called_while_no_io_is_in_progress() {
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let harness = Harness::default();
    harness.serve("a", mongos());
    let options = Options::parse("mongodb://a").unwrap();
    let sink = {
        let (seen, harness) = (Arc::clone(&seen), harness.clone());
        sink_fn(move |event| {
            // This call locks the harness, so it would hang if I/O were in progress.
            harness.advance(10);
            seen.lock().unwrap().push(event.seq);
        })
    };
    let builder = TopologyBuilder::new(options).sink(sink);
    let mut topology = builder.scan(harness.backend(SEED)).unwrap();
    select(&mut topology).unwrap();
    topology.close();
    let seen = seen.lock().unwrap();
    let expected: Vec<u64> = (1..=seen.len() as u64).collect();
    assert_eq!(*seen, expected, "no gap, no repetition");
}

#[test]
fn a_selection_that_waits_publishes_the_remaining_time_unless_it_tries_once() {
    // A selection that finds no server reports once that it is waiting (K-8).
    for try_once in [true, false] {
        let harness = Harness::default();
        let (mut topology, mut events) =
            harness.topology("a", |options| options.server_selection_try_once = Some(try_once));
        ready(topology.scan());
        select(&mut topology).unwrap_err();
        let events = drain(&mut events);
        let remaining = events.iter().find_map(|event| match &event.kind {
            EventKind::ServerSelectionWaiting { remaining, .. } => Some(*remaining),
            _ => None,
        });
        let remaining = remaining.unwrap();
        assert_eq!(remaining.is_none(), try_once, "{remaining:?}");
        assert!(remaining.is_none_or(|left| !left.is_zero()));
        let failure = events.iter().find_map(|event| match &event.kind {
            EventKind::ServerSelectionFailed { failure, .. } => Some(failure),
            _ => None,
        });
        assert!(failure.unwrap().starts_with("no server was suitable; "), "{failure:?}");
    }
}

#[test]
fn a_library_is_appended_to_the_metadata_once() {
    let (topology, _events) = Harness::default().topology("a", |_| {});
    let library = || DriverInfo::new("wrapper");
    assert_eq!(topology.append_metadata(library()), Ok(true));
    assert_eq!(topology.append_metadata(library()), Ok(false));
}

fn start(harness: &Harness) -> (ScanTopology, EventStream) {
    let mut hello = mongos();
    hello.insert("serviceId", ObjectId::from_bytes([3; 12]));
    harness.serve("lb", hello);
    harness.topology("lb", |options| options.load_balanced = true)
}

fn ping() -> Vec<u8> {
    bytes(&doc! { "count": "things", "$db": "test" })
}

#[test]
fn h_14_the_balancer_is_selected_without_any_scan() {
    let harness = Harness::default();
    let (mut topology, mut events) = start(&harness);
    for _ in 0..3 {
        assert_eq!(select(&mut topology), Ok("lb".into()));
        harness.advance(100_000);
    }
    ready(topology.scan());
    assert_eq!(harness.log(), "");
    assert_eq!(harness.open(), 0);
    topology.close();
    let mut summaries = summaries(&mut events);
    assert!(!summaries.iter().any(|event| event.contains("Heartbeat")));
    summaries.retain(|event| !event.starts_with("Pool"));
    // A load-balanced topology has a fixed sequence of events (J-21).
    assert_eq!(
        summaries[..6],
        [
            "TopologyOpening",
            "TopologyLoadBalanced",
            "Opening lb",
            "LoadBalancer lb",
            "TopologyLoadBalanced",
            "SelectionStarted",
        ]
    );
}

#[test]
fn h_14_i_50_i_52_the_loss_of_the_only_connection_changes_only_its_service_generation() {
    let harness = Harness::default();
    let (mut topology, mut events) = start(&harness);
    let server = id(&topology, "lb");
    for _ in 0..3 {
        ready(topology.run_command(server, &ping(), None)).unwrap();
    }
    let log = "lb connect, lb hello, lb count, lb count, lb count";
    assert_eq!(harness.log(), log, "F-5: never legacy hello");
    assert_eq!(harness.open(), 1);
    let service = topology.connection(server).unwrap().service_id();
    assert_eq!(service.unwrap().bytes(), [3; 12]);
    let before = topology.generation(server, service).unwrap();
    harness.restart("lb");
    summaries(&mut events);
    ready(topology.run_command(server, &ping(), None)).unwrap_err();
    assert_eq!(summaries(&mut events), ["PoolCleared lb"]);
    assert_eq!(topology.generation(server, service), Some(before.next()));
    assert_eq!(harness.open(), 0);
    ready(topology.run_command(server, &ping(), None)).unwrap();
    assert_eq!(harness.open(), 1);
    // F-67: the topology forgot the service when the service's last connection was closed, and
    // learned of it again from the new connection.
    assert!(topology.generation(server, service) > Some(before.next()));
    let mut error = ErrorReport::new(before.next(), Error::network(Stage::Operation, "broken"))
        .with_service(service);
    let outcome = topology.handle_error(server, &error);
    assert_eq!(outcome, ErrorOutcome::Stale);
    assert_eq!(harness.open(), 1, "the error is that of another connection");
    error.generation = topology.connection(server).unwrap().generation();
    assert_eq!(topology.handle_error(server, &error), ErrorOutcome::ServiceCleared);
    assert_eq!(harness.open(), 0);
}

#[test]
fn i_51_errors_before_the_hello_reply_are_only_returned_to_the_caller() {
    let harness = Harness::default();
    let (mut topology, mut events) = start(&harness);
    let server = id(&topology, "lb");
    summaries(&mut events);
    harness.kill("lb");
    let error = ready(topology.connect(server)).unwrap_err();
    assert_eq!(error.stage(), Stage::Connect);
    harness.revive("lb");
    harness.serve("lb", mongos());
    let error = ready(topology.connect(server)).unwrap_err();
    // A handshake without `serviceId` fails with the message that the Load Balancers specification
    // requires (C-23).
    assert_eq!(
        error.message(),
        "Driver attempted to initialize in load balancing mode, but the server does not support \
         this mode."
    );
    harness.change("lb", |server| server.silent = true);
    let error = ready(topology.connect(server)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(summaries(&mut events), Vec::<String>::new());
    assert_eq!(harness.open(), 0);
}

#[test]
fn h_12_a_dead_connection_to_a_balancer_is_replaced() {
    let harness = Harness::default();
    let (mut topology, mut events) = start(&harness);
    let server = id(&topology, "lb");
    ready(topology.connect(server)).unwrap();
    harness.restart("lb");
    harness.advance(5_000);
    summaries(&mut events);
    harness.log();
    assert_eq!(select(&mut topology), Ok("lb".into()));
    assert_eq!(harness.log(), "lb ping");
    assert_eq!(
        summaries(&mut events),
        ["SelectionStarted", "SelectionSucceeded lb"],
        "I-50: it is never Unknown"
    );
    assert_eq!(harness.open(), 0);
    ready(topology.run_command(server, &ping(), None)).unwrap();
}
