//! The connection that checks and operations share.

use bson::doc;
use sdam_core::{error::ErrorKind, server::ServerType};
use std::time::Duration;

use crate::stage::*;

fn find() -> Vec<u8> {
    bytes(&doc! { "find": "things", "$db": "test" })
}

#[test]
fn operations_run_on_the_connection_that_the_scan_has_opened() {
    let stage = Stage::default();
    let (mut topology, _) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    stage.log();
    let server = id(&topology, "a");
    let reply = ready(topology.run_command(server, &find(), None)).unwrap();
    assert_eq!(reply, bytes(&doc! { "ok": 1 }));
    assert_eq!(stage.log(), "a find");
    assert_eq!(stage.open(), 3);
    // The next check uses it as well.
    stage.advance(70_000);
    select(&mut topology).unwrap();
    assert!(!stage.log().contains("connect"));
}

#[test]
fn h_12_x_38_a_connection_unused_for_5_seconds_is_probed_before_it_is_lent() {
    let stage = Stage::default();
    let (mut topology, _) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    stage.log();
    let server = id(&topology, "a");
    stage.advance(4_990);
    select(&mut topology).unwrap();
    assert_eq!(stage.log(), "");
    // Borrowing the channel counts as use.
    ready(topology.run_command(server, &find(), None)).unwrap();
    stage.advance(4_990);
    select(&mut topology).unwrap();
    assert_eq!(stage.log(), "a find");
    stage.advance(10);
    select(&mut topology).unwrap();
    select(&mut topology).unwrap();
    assert_eq!(stage.log(), "a ping", "once");
}

#[test]
fn h_12_a_refusal_is_an_answer() {
    let stage = Stage::default();
    let (mut topology, _) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    stage.change("a", |server| server.other = reply(&refusal(13)));
    stage.advance(5_000);
    stage.log();
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(stage.log(), "a ping");
}

#[test]
fn h_12_a_dead_connection_makes_its_server_unknown_and_selection_begins_anew() {
    let stage = Stage::default();
    let (mut topology, mut events) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    stage.restart("a");
    stage.advance(5_000);
    stage.log();
    told(&mut events);
    assert_eq!(select(&mut topology), Ok("a".into()));
    let log = stage.log();
    // No primary is known then, so the second selection scans, and selects without a probe.
    assert!(log.starts_with("a ping, "), "{log}");
    assert!(log.contains("a connect, a isMaster"), "{log}");
    assert_eq!(log.matches("ping").count(), 1, "{log}");
    let told = told(&mut events);
    assert_eq!(
        told[..5],
        [
            "SelectionStarted",
            "Unknown a",
            "TopologyReplicaSetNoPrimary",
            "PoolCleared a",
            "SelectionWaiting",
        ]
    );
}

#[test]
fn h_12_a_silent_connection_is_dead_after_connect_timeout_ms() {
    let stage = Stage::default();
    let (mut topology, _) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    stage.change("a", |server| server.silent = true);
    stage.advance(5_000);
    let before = stage.millis();
    assert!(select(&mut topology).is_err());
    let description = topology.description();
    let lost = description.server(&address("a")).unwrap();
    assert_eq!(lost.error.as_ref().unwrap().kind, ErrorKind::Timeout);
    // The probe, and one attempt of the scan at a server that is no longer known.
    assert_eq!(stage.millis() - before, 20_002);
}

#[test]
fn h_12_the_second_selection_may_lead_elsewhere() {
    let stage = Stage::default();
    let (mut topology, _) = stage.topology("a b", |_| ());
    stage.serve("a", mongos());
    stage.serve("b", mongos());
    let first = select(&mut topology).unwrap();
    stage.restart("a");
    stage.restart("b");
    stage.advance(5_000);
    stage.log();
    let second = select(&mut topology).unwrap();
    let log = stage.log();
    let (dead, other) = if log == "a ping" {
        ("a", "b")
    } else {
        ("b", "a")
    };
    assert_eq!(log, format!("{dead} ping"), "{first}");
    assert_eq!(
        second, other,
        "its connection is dead, too, but nobody asks twice"
    );
    assert_eq!(kind(&topology, dead), ServerType::Unknown);
}

#[test]
fn h_9_an_overloaded_server_does_not_cost_an_authenticated_connection() {
    for authenticated in [true, false] {
        let stage = Stage::default();
        let (mut topology, _) = stage.replica_set(|_| ());
        select(&mut topology).unwrap();
        let server = id(&topology, "b");
        if authenticated {
            topology.channel(server).unwrap().set_authenticated();
        }
        let mut overloaded = refusal(462);
        overloaded.insert("errorLabels", ["SystemOverloadedError"].to_vec());
        stage.serve("b", overloaded);
        stage.advance(70_000);
        select(&mut topology).unwrap();
        assert_eq!(kind(&topology, "b"), ServerType::Unknown);
        assert_eq!(stage.open(), if authenticated { 3 } else { 2 });
        // A remaining connection can still be used, in the pool's current generation.
        assert_eq!(topology.channel(server).is_some(), authenticated);
        if let Some(channel) = topology.channel(server) {
            let generation = channel.generation();
            assert_eq!(topology.generation(server, None), Some(generation));
        }
        stage.serve("b", member(false, "a b c"));
        stage.advance(70_000);
        stage.log();
        select(&mut topology).unwrap();
        assert_eq!(stage.log().contains("b connect"), !authenticated);
    }
}

#[test]
fn an_operation_that_takes_too_long_costs_its_connection_and_nothing_else() {
    // I-16
    let stage = Stage::default();
    let (mut topology, _) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    stage.change("a", |server| server.silent = true);
    let server = id(&topology, "a");
    let limit = Some(Duration::from_secs(1));
    let error = ready(topology.run_command(server, &find(), limit)).unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(kind(&topology, "a"), ServerType::RsPrimary);
    assert_eq!(stage.open(), 2);
    assert!(topology.channel(server).is_none());
    // The next command opens another connection, which also checks the server.
    stage.change("a", |server| server.silent = false);
    stage.log();
    ready(topology.run_command(server, &find(), limit)).unwrap();
    assert_eq!(stage.log(), "a connect, a isMaster, a find");
}

#[test]
fn a_connection_that_cannot_be_opened_is_an_error() {
    let stage = Stage::default();
    let (mut topology, _) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    let server = id(&topology, "a");
    topology.disconnect(server);
    assert_eq!(stage.open(), 2);
    assert_eq!(kind(&topology, "a"), ServerType::RsPrimary);
    stage.kill("a");
    let error = ready(topology.connect(server)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Network);
    assert_eq!(kind(&topology, "a"), ServerType::Unknown);
    let unknown = sdam_core::ids::ServerId::from_u64(99);
    assert!(ready(topology.connect(unknown)).is_err());
    assert!(topology.channel(unknown).is_none());
}

#[test]
fn drivers_may_frame_their_own_messages() {
    use sdam_transport::wire::OpMsg;
    let stage = Stage::default();
    let (mut topology, _) = stage.replica_set(|_| ());
    select(&mut topology).unwrap();
    let server = id(&topology, "a");
    let mut channel = topology.channel(server).unwrap();
    let body = find();
    let message = OpMsg {
        request_id: 77,
        body: &body,
        ..OpMsg::default()
    };
    let connection = channel.connection().unwrap();
    ready(connection.send(message.encode().unwrap())).unwrap();
    assert_eq!(ready(connection.recv()).unwrap().response_to(), 77);
    stage.advance(70_000);
    stage.log();
    select(&mut topology).unwrap();
    assert!(!stage.log().contains("connect"));
}
