//! Single-threaded mode behind a load balancer.

use bson::{doc, oid::ObjectId};
use sdam::{
    Error, ErrorKind, ScanTopology,
    error::{ErrorOutcome, ErrorReport, Stage},
};
use sdam_events::channel::EventStream;

use super::harness::*;

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
