//! The connection shared by checks and operations.

use super::*;

fn find() -> Vec<u8> {
    bytes(&doc! { "find": "things", "$db": "test" })
}

#[test]
fn h_12_x_38_a_connection_unused_for_5_seconds_is_probed_before_it_is_used() {
    let (harness, mut topology, _) = scanned();
    let server = id(&topology, "a");
    harness.advance(4_990);
    select(&mut topology).unwrap();
    assert_eq!(harness.log(), "");
    // Running a command also defers the next probe.
    ready(topology.run_command(server, &find(), None)).unwrap();
    harness.advance(4_990);
    select(&mut topology).unwrap();
    assert_eq!(harness.log(), "a find");
    harness.advance(10);
    select(&mut topology).unwrap();
    select(&mut topology).unwrap();
    assert_eq!(harness.log(), "a ping", "once");
}

#[test]
fn h_12_an_error_reply_to_a_probe_proves_that_the_connection_works() {
    let (harness, mut topology, _) = scanned();
    harness.change("a", |server| server.other = reply(&refusal(13)));
    harness.advance(5_000);
    assert_eq!(select(&mut topology), Ok("a".into()));
    assert_eq!(harness.log(), "a ping");
}

#[test]
fn h_12_a_dead_connection_makes_its_server_unknown_and_restarts_the_selection() {
    let (harness, mut topology, mut events) = scanned();
    harness.restart("a");
    harness.advance(5_000);
    assert_eq!(select(&mut topology), Ok("a".into()));
    let log = harness.log();
    // Because of the failed probe, no primary is known, so the selection scans. It sends no further
    // probe.
    assert!(log.starts_with("a ping, "), "{log}");
    assert!(log.contains("a connect, a isMaster"), "{log}");
    assert_eq!(log.matches("ping").count(), 1, "{log}");
    let mut summaries = summaries(&mut events);
    summaries.retain(|event| !event.starts_with("HeartbeatStarted"));
    assert_eq!(
        summaries[..5],
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
    let (harness, mut topology, _) = scanned();
    harness.change("a", |server| server.silent = true);
    harness.advance(5_000);
    let before = harness.millis();
    assert!(select(&mut topology).is_err());
    let description = topology.description();
    let lost = description.server(&address("a")).unwrap();
    assert_eq!(lost.error.as_ref().unwrap().kind(), ErrorKind::Timeout);
    // The probe times out, and so does the only attempt of the scan to check the Unknown server.
    assert_eq!(harness.millis() - before, 20_002);
}

#[test]
fn h_12_the_repeated_selection_may_choose_another_server() {
    let harness = Harness::default();
    let (mut topology, _) = harness.topology("a b", |_| ());
    harness.serve("a", mongos());
    harness.serve("b", mongos());
    let first = select(&mut topology).unwrap();
    harness.restart("a");
    harness.restart("b");
    harness.advance(5_000);
    harness.log();
    let second = select(&mut topology).unwrap();
    let log = harness.log();
    let (dead, other) = if log == "a ping" { ("a", "b") } else { ("b", "a") };
    assert_eq!(log, format!("{dead} ping"), "{first}");
    assert_eq!(second, other, "its connection is dead, too, but no second probe is sent");
    assert_eq!(kind(&topology, dead), ServerType::Unknown);
}

#[test]
fn h_9_an_overload_error_does_not_close_an_authenticated_connection() {
    for authenticated in [true, false] {
        let (harness, mut topology, _) = scanned();
        let server = id(&topology, "b");
        if authenticated {
            topology.connection(server).unwrap().set_authenticated();
        }
        let mut overloaded = refusal(462);
        overloaded.insert("errorLabels", ["SystemOverloadedError"].to_vec());
        harness.serve("b", overloaded);
        harness.advance(70_000);
        select(&mut topology).unwrap();
        assert_eq!(kind(&topology, "b"), ServerType::Unknown);
        assert_eq!(harness.open(), if authenticated { 3 } else { 2 });
        // A connection that remains can still be used, and has the pool's current generation.
        assert_eq!(topology.connection(server).is_some(), authenticated);
        if let Some(lent) = topology.connection(server) {
            let generation = lent.generation();
            assert_eq!(topology.generation(server, None), Some(generation));
        }
        harness.serve("b", member(false, "a b c"));
        harness.advance(70_000);
        harness.log();
        select(&mut topology).unwrap();
        assert_eq!(harness.log().contains("b connect"), !authenticated);
    }
}

#[test]
fn an_operation_timeout_only_closes_its_connection() {
    // A timeout of an established connection changes nothing (I-16).
    let (harness, mut topology, _) = scanned();
    harness.change("a", |server| server.silent = true);
    let server = id(&topology, "a");
    let limit = Some(Duration::from_secs(1));
    let error = ready(topology.run_command(server, &find(), limit)).unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(kind(&topology, "a"), ServerType::RsPrimary);
    assert_eq!(harness.open(), 2);
    assert!(topology.connection(server).is_none());
    // The next command opens another connection, which also checks the server.
    harness.change("a", |server| server.silent = false);
    harness.log();
    ready(topology.run_command(server, &find(), limit)).unwrap();
    assert_eq!(harness.log(), "a connect, a isMaster, a find");
}

#[test]
fn a_failed_connect_returns_an_error_and_marks_the_server_unknown() {
    let (harness, mut topology, _) = scanned();
    let server = id(&topology, "a");
    topology.disconnect(server);
    assert_eq!(harness.open(), 2);
    assert_eq!(kind(&topology, "a"), ServerType::RsPrimary);
    harness.kill("a");
    let error = ready(topology.connect(server)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network);
    assert_eq!(kind(&topology, "a"), ServerType::Unknown);
    let unknown = ServerId::from_u64(99);
    assert!(ready(topology.connect(unknown)).is_err());
    assert!(topology.connection(unknown).is_none());
}

#[test]
fn a_channel_carries_messages_that_the_driver_has_framed() {
    use sdam_transport::wire::OpMsg;
    let (harness, mut topology, _) = scanned();
    let server = id(&topology, "a");
    let mut lent = topology.connection(server).unwrap();
    let body = find();
    let message = OpMsg { request_id: 77, body: &body, ..OpMsg::default() };
    let connection = lent.connection().unwrap();
    ready(connection.send(message.encode().unwrap())).unwrap();
    assert_eq!(ready(connection.recv()).unwrap().response_to(), 77);
    harness.advance(70_000);
    harness.log();
    select(&mut topology).unwrap();
    assert!(!harness.log().contains("connect"));
}
