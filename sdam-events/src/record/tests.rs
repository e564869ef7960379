use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use bson::doc;
use sdam_core::{
    app_error::AppError,
    error::{ErrorKind, ServerError, Stage},
    event::{EventKind, SelectionFailure},
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    machine::RecordedInput,
    options::Options,
    pool::PoolClear,
    server::{Rtt, ServerType},
    topology::{TopologyDescription, TopologyType},
};

use super::{RecordSink, line};
use crate::{
    sink::{EventSink, Interest},
    test_support::{
        address, description, event, failed, opening, selection, started, succeeded,
        topology_changed,
    },
};

fn check(kind: EventKind, expected: &str) {
    let line = line(&event(kind));
    assert_eq!(line, format!(r#"{{"seq":1,"at":1000000,{expected}}}"#));
    assert!(
        serde_json::from_str::<serde_json::Value>(&line).is_ok(),
        "{line}"
    );
}

fn check_input(input: RecordedInput, expected: &str) {
    check(EventKind::Input(Arc::new(input)), expected);
}

fn error() -> ServerError {
    let mut error = ServerError::new(ErrorKind::Command, Stage::Hello, "no \"primary\"");
    error.code = Some(10107);
    error.code_name = Some("NotWritablePrimary".into());
    error.labels = ["L".into()].into();
    error.topology_version = Some(TopologyVersion {
        process_id: ObjectId::from_bytes([1; 12]),
        counter: 4,
    });
    error
}

const ERROR: &str = r#"{"kind":"command","stage":"hello","code":10107,"codeName":"NotWritablePrimary","labels":["L"],"message":"no \"primary\"","topologyVersion":{"processId":"010101010101010101010101","counter":4}}"#;

#[test]
fn events_of_topology_and_servers_have_their_lines() {
    check(
        EventKind::TopologyOpening,
        r#""event":"TopologyOpening","topology":"070707070707070707070707""#,
    );
    check(EventKind::TopologyClosed, r#""event":"TopologyClosed""#);
    check(
        opening(1),
        r#""event":"ServerOpening","server":1,"address":"host1:27017""#,
    );
    let mut primary = description(1, ServerType::RsPrimary);
    primary.set_name = Some("rs".into());
    primary.hosts = [address("host1"), address("host2")].into();
    primary.election.set_version = Some(3);
    primary.wire_versions.max = 21;
    primary.rtt = Some(Rtt {
        average: Duration::from_nanos(5),
        minimum: Duration::from_nanos(4),
        p90: Duration::from_nanos(6),
    });
    let topology = TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, [primary.clone()]);
    check(
        topology_changed(&TopologyDescription::default(), &topology),
        r#""event":"TopologyDescriptionChanged","new":{"type":"ReplicaSetWithPrimary","servers":{"host1:27017":"RSPrimary"}}"#,
    );
    let mut unknown = description(1, ServerType::Unknown);
    unknown.error = Some(error().shared());
    check(
        EventKind::ServerDescriptionChanged {
            previous: Arc::new(unknown.clone()),
            new: Arc::new(primary.clone()),
        },
        r#""event":"ServerDescriptionChanged","server":1,"address":"host1:27017","new":{"type":"RSPrimary","setName":"rs","hosts":["host1:27017","host2:27017"],"setVersion":3,"minWireVersion":0,"maxWireVersion":21,"rtt":{"average":5,"minimum":4,"p90":6}}"#,
    );
    check(
        EventKind::ServerDescriptionChanged {
            previous: Arc::new(primary),
            new: Arc::new(unknown),
        },
        &format!(
            r#""event":"ServerDescriptionChanged","server":1,"address":"host1:27017","new":{{"type":"Unknown","minWireVersion":0,"maxWireVersion":0,"error":{ERROR}}}"#
        ),
    );
    let ignored = EventKind::MembersIgnored {
        ignored: 2,
        limit: 5,
    };
    check(ignored, r#""event":"MembersIgnored","ignored":2,"limit":5"#);
    check(EventKind::TopologyEmptied, r#""event":"TopologyEmptied""#);
    let warnings = Options::new(Vec::new()).multi_threaded_warnings();
    check(
        EventKind::ConfigWarning(Arc::new(warnings[0].clone())),
        r#""event":"ConfigWarning","option":"seeds","value":"","reason":"there are none","consequence":"no server will ever be found""#,
    );
}

#[test]
fn events_of_checks_pools_and_selections_have_their_lines() {
    let heartbeat = r#""server":1,"address":"host1:27017","driverConnectionId":1,"awaited":false"#;
    check(
        started(1),
        &format!(r#""event":"ServerHeartbeatStarted",{heartbeat}"#),
    );
    check(
        succeeded(1, &doc! {}),
        &format!(
            r#""event":"ServerHeartbeatSucceeded",{heartbeat},"duration":1500000,"reply":"BQAAAAA=""#
        ),
    );
    check(
        failed(1),
        &format!(
            r#""event":"ServerHeartbeatFailed",{heartbeat},"duration":3000000,"error":{{"kind":"network","stage":"connect","message":"refused"}}"#
        ),
    );
    check(
        EventKind::PoolCleared {
            server: ServerId::from_u64(1),
            address: address("host1"),
            clear: PoolClear::new(Generation::from_u64(2), error().shared()),
        },
        &format!(
            r#""event":"PoolCleared","server":1,"address":"host1:27017","generation":2,"interruptInUse":false,"error":{ERROR}"#
        ),
    );
    check(
        EventKind::ServerSelectionFailed {
            selection: selection(),
            description: Arc::default(),
            reason: SelectionFailure::Timeout,
            failure: "none".into(),
            duration: Duration::from_nanos(9),
        },
        r#""event":"ServerSelectionFailed","selector":"{ mode: primary }","operation":"find","operationId":42,"reason":"timeout","failure":"none","duration":9"#,
    );
}

#[test]
fn inputs_have_their_lines() {
    let server = ServerId::from_u64(3);
    check_input(RecordedInput::Open, r#""input":"Open""#);
    check_input(
        RecordedInput::Checked {
            server,
            error: Some(error().shared()),
            rtt: None,
        },
        &format!(r#""input":"Checked","server":3,"error":{ERROR}"#),
    );
    check_input(
        RecordedInput::Handshake {
            server,
            generation: Generation::from_u64(1),
            reply: [1, 2, 3, 4].into(),
            rtt: Some(Rtt {
                average: Duration::from_nanos(7),
                minimum: Duration::ZERO,
                p90: Duration::from_nanos(8),
            }),
        },
        r#""input":"Handshake","server":3,"generation":1,"reply":"AQIDBA==","rtt":{"average":7,"minimum":0,"p90":8}"#,
    );
    check_input(
        RecordedInput::ServiceConnectionClosed {
            server,
            service: ObjectId::from_bytes([2; 12]),
            generation: Generation::from_u64(1),
        },
        r#""input":"ServiceConnectionClosed","server":3,"serviceId":"020202020202020202020202","generation":1"#,
    );
    check_input(
        RecordedInput::Hosts([address("a"), address("b")].into()),
        r#""input":"Hosts","hosts":["a:27017","b:27017"]"#,
    );
    let common = r#""input":"AppError","server":3,"generation":1"#;
    let check_error = |error: AppError<'_>, fields: &str| {
        let recorded = RecordedInput::of_error(server, &error);
        check_input(recorded, &format!("{common},{fields}"));
    };
    let generation = Generation::from_u64(1);
    check_error(
        AppError::network(generation, Stage::Dns, "m"),
        r#""stage":"dns","network":"m""#,
    );
    check_error(
        AppError::timeout(generation, Stage::Connect, "m"),
        r#""stage":"connect","timeout":"m""#,
    );
    check_error(
        AppError::protocol(generation, Stage::Tls, "m"),
        r#""stage":"tls","protocol":"m""#,
    );
    check_error(
        AppError::auth(generation, "m").with_max_wire_version(21),
        r#""stage":"auth","maxWireVersion":21,"auth":"m""#,
    );
    check_error(
        AppError::reply(generation, Stage::Operation, b"x")
            .with_service(ObjectId::from_bytes([2; 12]))
            .with_max_wire_version(7),
        r#""serviceId":"020202020202020202020202","stage":"operation","maxWireVersion":7,"reply":"eA==""#,
    );
}

#[test]
fn a_recording_begins_with_the_options_that_matter() {
    let options = Options::parse("mongodb://a,b:5/?replicaSet=rs").unwrap();
    let sink = RecordSink::new(Vec::new(), &options).unwrap();
    assert!(
        sink.interest()
            .contains_all(Interest::INPUTS.union(Interest::HEARTBEATS))
    );
    assert!(sink.interest().intersection(Interest::SELECTION).is_empty());
    sink.emit(&event(EventKind::TopologyClosed));
    let text = String::from_utf8(sink.finish().unwrap()).unwrap();
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            r#"{"recording":"sdam","version":1,"options":{"seeds":["a:27017","b:5"],"loadBalanced":false,"replicaSet":"rs","minWireVersion":8,"maxWireVersion":29,"driverName":"sdam","maxServers":1024,"handshakeErrorsMarkUnknown":false}}"#,
            r#"{"seq":1,"at":1000000,"event":"TopologyClosed"}"#,
        ]
    );
    assert!(text.ends_with('\n'));
}

/// A writer that fails after this many writes.
#[derive(Debug)]
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                Ok(bytes.len())
            }
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_recording_ends_at_the_first_error() {
    let options = Options::new(vec![address("a")]);
    assert!(RecordSink::new(Full(0), &options).is_err());
    let sink = RecordSink::new(Full(2), &options).unwrap();
    sink.emit(&event(started(1)));
    assert!(sink.take_error().is_none());
    sink.emit(&event(failed(1)));
    assert_eq!(
        sink.take_error().unwrap().kind(),
        io::ErrorKind::StorageFull
    );
    sink.emit(&event(failed(1)));
    assert!(sink.take_error().is_none(), "it has not tried again");
}
