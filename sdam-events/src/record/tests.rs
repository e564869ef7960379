use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bson::doc;
use sdam_core::{
    deployment::{ConnId, Input, RecordedInput, Role, Setup, Timer},
    error::{Error, ErrorKind, Stage},
    event::{CheckOutFailure, ConnectionClosedReason, EventKind, EventName, SelectionFailure},
    hello::{Hello, HelloReply},
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    options::{Options, Srv},
    pool::{PoolClear, PoolOptions},
    read_preference::TagSet,
    reply,
    report::ErrorReport,
    server::{Rtt, ServerType},
    srv::SrvRecords,
    time::Instant,
    topology::{Obstacle, TopologyDescription, TopologyType},
};

use super::RecordSink;
use crate::{
    sink::{EventSink, Interest},
    test_support::{
        address, check_out_failed, checked_out, closed, command, description, event, failed,
        not_found, opening, pool_cleared, selection, selects, server, started, succeeded,
        topology_changed,
    },
};

fn check(kind: EventKind, expected: &str) {
    let line = serde_json::to_string(&event(kind)).unwrap();
    let common = r#""seq":1,"at":1000000,"topology":"070707070707070707070707""#;
    assert_eq!(line, format!("{{{common},{expected}}}"));
}

/// Checks that `input` is serialized as `expected`, and that it can be read back.
fn check_input(input: &Input, expected: &str) {
    assert_eq!(serde_json::to_string(input).unwrap(), expected);
    assert_eq!(serde_json::from_str::<Input>(expected).unwrap(), *input);
}

fn error() -> Error {
    Error::new(ErrorKind::Command, Stage::Hello, "no \"primary\"")
        .with_code(10107)
        .with_code_name("NotWritablePrimary")
        .with_label("L")
        .with_topology_version(TopologyVersion {
            process_id: ObjectId::from_bytes([1; 12]),
            counter: 4,
        })
}

const ERROR: &str = r#"{"kind":"command","stage":"hello","code":10107,"codeName":"NotWritablePrimary","labels":["L"],"message":"no \"primary\"","topologyVersion":{"processId":"010101010101010101010101","counter":4}}"#;

/// The document `{ ok: 1 }`.
const DOCUMENT: &str = r#""DQAAABBvawABAAAAAA==""#;

#[test]
fn topology_and_server_events_are_written_as_documented() {
    check(EventKind::TopologyOpening, r#""event":"TopologyOpening""#);
    check(EventKind::TopologyClosed, r#""event":"TopologyClosed""#);
    check(opening(1), r#""event":"ServerOpening","server":1,"address":"host1:27017""#);
    let mut primary = description(1, ServerType::RsPrimary);
    primary.set_name = Some("rs".into());
    primary.hosts = [address("host1"), address("host2")].into();
    primary.tags = TagSet::from_iter([("dc", "ny")]);
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
        r#""event":"TopologyDescriptionChanged","new":{"type":"ReplicaSetWithPrimary","setName":null,"maxElection":{"electionId":null,"setVersion":null},"logicalSessionTimeoutMinutes":null,"compatibilityError":null,"servers":{"host1:27017":"RSPrimary"}}"#,
    );
    let mut unknown = description(1, ServerType::Unknown);
    unknown.error = Some(error());
    check(
        EventKind::ServerDescriptionChanged {
            previous: Arc::new(unknown.clone()),
            new: Arc::new(primary.clone()),
        },
        r#""event":"ServerDescriptionChanged","new":{"id":1,"address":"host1:27017","type":"RSPrimary","error":null,"rtt":{"average":5,"minimum":4,"p90":6},"lastWriteDate":null,"minWireVersion":0,"maxWireVersion":21,"me":null,"hosts":["host1:27017","host2:27017"],"passives":[],"arbiters":[],"tags":{"dc":"ny"},"setName":"rs","electionId":null,"setVersion":3,"primary":null,"logicalSessionTimeoutMinutes":null,"topologyVersion":null,"iscryptd":null}"#,
    );
    check(
        EventKind::ServerDescriptionChanged { previous: Arc::new(primary), new: Arc::new(unknown) },
        &format!(
            r#""event":"ServerDescriptionChanged","new":{{"id":1,"address":"host1:27017","type":"Unknown","error":{ERROR},"rtt":null,"lastWriteDate":null,"minWireVersion":0,"maxWireVersion":0,"me":null,"hosts":[],"passives":[],"arbiters":[],"tags":{{}},"setName":null,"electionId":null,"setVersion":null,"primary":null,"logicalSessionTimeoutMinutes":null,"topologyVersion":null,"iscryptd":null}}"#
        ),
    );
    let ignored = EventKind::MembersIgnored { ignored: 2, limit: 5 };
    check(ignored, r#""event":"MembersIgnored","ignored":2,"limit":5"#);
    let obstacle = Obstacle::Proxy(Error::new(ErrorKind::Network, Stage::Proxy, "m"));
    let unusable = EventKind::ServerUnusable {
        server: ServerId::from_u64(1),
        address: address("host1"),
        obstacle,
    };
    check(
        unusable,
        r#""event":"ServerUnusable","server":1,"address":"host1:27017","obstacle":"m""#,
    );
    check(EventKind::TopologyEmptied, r#""event":"TopologyEmptied""#);
    let foreign = EventKind::SrvHostsIgnored {
        name: "_mongodb._tcp.a.b.c".into(),
        domain: "b.c".into(),
        hosts: [address("a.evil.c")].into(),
    };
    check(
        foreign,
        r#""event":"SrvHostsIgnored","name":"_mongodb._tcp.a.b.c","domain":"b.c","hosts":["a.evil.c:27017"]"#,
    );
    let warnings = Options::new(Vec::new()).multi_threaded_warnings();
    check(
        EventKind::ConfigWarning(Arc::new(warnings[0].clone())),
        r#""event":"ConfigWarning","option":"seeds","value":"","reason":"there are none","consequence":"no server will ever be found""#,
    );
}

#[test]
fn heartbeat_pool_and_selection_events_are_written_as_documented() {
    let heartbeat = r#""server":1,"address":"host1:27017","driverConnectionId":1,"serverConnectionId":null,"awaited":false"#;
    check(started(1), &format!(r#""event":"ServerHeartbeatStarted",{heartbeat}"#));
    check(
        succeeded(1, &doc! {}),
        &format!(
            r#""event":"ServerHeartbeatSucceeded",{heartbeat},"duration":1500000,"reply":"BQAAAAA=""#
        ),
    );
    check(
        failed(1),
        &format!(
            r#""event":"ServerHeartbeatFailed",{heartbeat},"duration":3000000,"error":{{"kind":"network","stage":"connect","code":null,"codeName":null,"labels":[],"message":"refused","topologyVersion":null}}"#
        ),
    );
    check(
        pool_cleared(PoolClear::new(Generation::from_u64(2), error())),
        &format!(
            r#""event":"PoolCleared","server":1,"address":"host1:27017","generation":2,"serviceId":null,"interruptInUse":false,"wasPaused":false,"error":{ERROR}"#
        ),
    );
    check(
        not_found(&selection(), SelectionFailure::Timeout, Duration::from_nanos(9)),
        r#""event":"ServerSelectionFailed","selector":"{ mode: primary }","operation":"find","operationId":42,"reason":"timeout","failure":"no server","duration":9"#,
    );
}

#[test]
fn connection_and_command_events_are_written_with_the_fields_of_their_types() {
    let (server, address) = server();
    let nine = Duration::from_nanos(9);
    let common = r#""server":1,"address":"host1:27017""#;
    let ids = r#""driverConnectionId":3,"serverConnectionId":4"#;
    check(
        EventKind::PoolCreated { server, address, options: Arc::new(PoolOptions::default()) },
        &format!(
            r#""event":"PoolCreated",{common},"options":{{"maxPoolSize":100,"minPoolSize":0,"maxIdleTime":null,"maxConnecting":2,"waitQueueTimeout":null}}"#
        ),
    );
    check(
        closed(ConnectionClosedReason::PoolClosed, Some(error())),
        &format!(
            r#""event":"ConnectionClosed",{common},{ids},"reason":"poolClosed","error":{ERROR}"#
        ),
    );
    check(
        check_out_failed(CheckOutFailure::ConnectionError, nine),
        &format!(
            r#""event":"ConnectionCheckOutFailed",{common},"reason":"connectionError","failure":"refused","duration":9"#
        ),
    );
    check(
        checked_out(nine),
        &format!(r#""event":"ConnectionCheckedOut",{common},{ids},"duration":9"#),
    );
    let names = format!(
        r#""commandName":"ping","databaseName":"db","requestId":7,"operationId":42,{common},{ids},"serviceId":"020202020202020202020202""#
    );
    let (info, document) = command(&doc! { "ping": 1 });
    check(
        info.started(&document),
        &format!(r#""event":"CommandStarted",{names},"document":"DwAAABBwaW5nAAEAAAAA""#),
    );
    check(
        info.succeeded(nine, &[5, 0, 0, 0, 0]),
        &format!(r#""event":"CommandSucceeded",{names},"duration":9,"reply":"BQAAAAA=""#),
    );
    check(
        info.failed(nine, error()),
        &format!(r#""event":"CommandFailed",{names},"duration":9,"error":{ERROR}"#),
    );
}

#[test]
fn answers_and_timers_are_written_as_documented() {
    let server = ServerId::from_u64(3);
    let at = Instant::from_nanos;
    let conn = |role| ConnId { server, role, number: 2 };
    let check_conn = |role: &str| format!(r#"{{"server":3,"role":"{role}","number":2}}"#);
    let [check, ping] = ["Check", "Ping"].map(check_conn);
    check_input(&Input::Open, r#""Open""#);
    check_input(&Input::Close, r#""Close""#);
    check_input(
        &Input::Due { timer: Timer::Server(server), wanted: true },
        r#"{"Due":{"timer":{"Server":3},"wanted":true}}"#,
    );
    check_input(
        &Input::Connected { conn: conn(Role::Ping) },
        &format!(r#"{{"Connected":{{"conn":{ping}}}}}"#),
    );
    let reply = |role, conn_text: &str, reply, text: &str| {
        let input =
            Input::Reply { conn: conn(role), sent: at(4), at: at(5), reply, more_to_come: true };
        let fields = format!(r#""conn":{conn_text},"sent":4,"at":5,"reply":{text}"#);
        check_input(&input, &format!(r#"{{"Reply":{{{fields},"moreToCome":true}}}}"#));
    };
    let document = doc! { "ok": 1 }.to_vec().unwrap();
    let text = DOCUMENT;
    reply(Role::Check, &check, HelloReply::parse(document), text);
    reply(Role::Check, &check, HelloReply::parse(vec![1, 2, 3, 4]), r#""AQIDBA==""#);
    // Without a document, the line shows only whether there was an error.
    reply(Role::Ping, &ping, Ok(Hello::default()).into(), "null");
    reply(Role::Ping, &ping, Err(error()).into(), ERROR);
    check_input(
        &Input::Failed { conn: conn(Role::Check), at: at(5), error: error() },
        &format!(r#"{{"Failed":{{"conn":{check},"at":5,"error":{ERROR}}}}}"#),
    );
}

#[test]
fn inputs_about_servers_are_written_as_documented() {
    let server = ServerId::from_u64(3);
    let document = doc! { "ok": 1 }.to_vec().unwrap();
    let text = DOCUMENT;
    check_input(&Input::CheckRequested { server }, r#"{"CheckRequested":{"server":3}}"#);
    check_input(
        &Input::Handshake {
            server,
            generation: Generation::from_u64(1),
            reply: HelloReply::parse(document),
        },
        &format!(r#"{{"Handshake":{{"server":3,"generation":1,"reply":{text}}}}}"#),
    );
    check_input(
        &Input::ServiceConnectionClosed {
            server,
            service: ObjectId::from_bytes([2; 12]),
            generation: Generation::from_u64(1),
        },
        r#"{"ServiceConnectionClosed":{"server":3,"serviceId":"020202020202020202020202","generation":1}}"#,
    );
    check_input(
        &Input::Hosts([address("a"), address("b")].into()),
        r#"{"Hosts":["a:27017","b:27017"]}"#,
    );
    let records = SrvRecords::new(vec![address("a")], Duration::from_nanos(9));
    check_input(
        &Input::LookedUp(Ok(records)),
        r#"{"LookedUp":{"Ok":{"hosts":["a:27017"],"ttl":9}}}"#,
    );
}

#[test]
fn reported_errors_are_written_as_documented() {
    let server = ServerId::from_u64(3);
    let check_error = |error: ErrorReport, fields: &str| {
        let report = format!(r#"{{"generation":1,{fields}}}"#);
        let expected = format!(r#"{{"Error":{{"server":3,"report":{report}}}}}"#);
        let report = error;
        check_input(&Input::Error { server, report }, &expected);
    };
    let generation = Generation::from_u64(1);
    check_error(
        ErrorReport::new(generation, Error::network(Stage::Dns, "m")),
        r#""serviceId":null,"stage":"dns","cause":{"network":"m"},"maxWireVersion":null"#,
    );
    check_error(
        ErrorReport::new(generation, Error::timeout(Stage::Connect, "m")),
        r#""serviceId":null,"stage":"connect","cause":{"timeout":"m"},"maxWireVersion":null"#,
    );
    check_error(
        ErrorReport::new(generation, Error::protocol(Stage::Tls, "m")),
        r#""serviceId":null,"stage":"tls","cause":{"protocol":"m"},"maxWireVersion":null"#,
    );
    check_error(
        ErrorReport::new(generation, Error::auth("m")).with_max_wire_version(21),
        r#""serviceId":null,"stage":"auth","cause":{"auth":"m"},"maxWireVersion":21"#,
    );
    let reply = doc! { "ok": 0, "code": 7 }.to_vec().unwrap();
    let cause = STANDARD.encode(&reply);
    check_error(
        ErrorReport::new(generation, reply::error(&reply, Stage::Operation).unwrap())
            .with_service(ObjectId::from_bytes([2; 12]))
            .with_max_wire_version(7),
        &format!(
            r#""serviceId":"020202020202020202020202","stage":"operation","cause":{{"reply":"{cause}"}},"maxWireVersion":7"#
        ),
    );
    check_error(
        ErrorReport::new(generation, error()),
        &format!(
            r#""serviceId":null,"stage":"hello","cause":{{"error":{ERROR}}},"maxWireVersion":null"#
        ),
    );
}

#[test]
fn measured_round_trip_times_are_written_as_documented() {
    let measured = EventKind::RttMeasured {
        server: ServerId::from_u64(1),
        address: address("host1"),
        rtt: Rtt {
            average: Duration::from_nanos(7),
            minimum: Duration::ZERO,
            p90: Duration::from_nanos(8),
        },
    };
    check(
        measured,
        r#""event":"RttMeasured","server":1,"address":"host1:27017","rtt":{"average":7,"minimum":0,"p90":8}"#,
    );
}

#[test]
fn an_input_is_written_with_its_time_and_the_first_one_with_the_setup() {
    let input = |input, setup| {
        EventKind::Input(Arc::new(RecordedInput { now: Instant::from_nanos(5), input, setup }))
    };
    check(input(Input::Close, None), r#""now":5,"input":"Close""#);
    let options = Options::new(vec![address("a")]);
    let mut srv = Srv::new("c.example.com");
    srv.max_hosts = 3;
    let text = r#"{"seed":7,"heartbeatFrequency":10000000000,"minHeartbeatFrequency":500000000,"connectTimeout":10000000000,"streaming":true,"retryBeforeUnknown":false,"scans":{"frequency":60000000000,"tryOnce":true,"socketCheckInterval":5000000000,"immediateCheck":false},"maxHosts":3,"srv":{"host":"c.example.com","service":"mongodb","maxHosts":3,"ttl":0}}"#;
    let setup: Setup = serde_json::from_str(text).unwrap();
    assert_eq!(setup.connect_timeout, options.connect_timeout);
    assert_eq!(setup.srv, Some(srv));
    check(input(Input::Open, Some(setup)), &format!(r#""now":5,"input":"Open","setup":{text}"#));
}

/// Recordings and counters use the same names for kinds, stages, types and events.
#[test]
fn enumerations_are_written_as_as_str_returns_them() {
    fn check<T: serde::Serialize>(values: &[T], word: impl Fn(&T) -> &'static str) {
        for value in values {
            assert_eq!(serde_json::to_value(value).unwrap(), word(value));
        }
    }
    check(ErrorKind::ALL, |kind| kind.as_str());
    check(Stage::ALL, |stage| stage.as_str());
    check(EventName::ALL, |name| name.as_str());
    check(TopologyType::ALL, |topology| topology.as_str());
    check(SelectionFailure::ALL, |failure| failure.as_str());
    check(ConnectionClosedReason::ALL, |reason| reason.as_str());
    check(CheckOutFailure::ALL, |failure| failure.as_str());
}

#[test]
fn a_recording_starts_with_the_recorded_options() {
    let options = Options::parse("mongodb://a,b:5/?replicaSet=rs").unwrap();
    let sink = RecordSink::new(Vec::new(), &options).unwrap();
    assert!(sink.interest().contains_all(Interest::HEARTBEATS.union(EventName::Input.into())));
    assert!(sink.interest().intersection(Interest::OPERATIONS).is_empty());
    sink.emit(&event(succeeded(1, &doc! { "ok": 1 })));
    sink.emit(&event(EventKind::TopologyClosed));
    let text = String::from_utf8(sink.finish().unwrap()).unwrap();
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            r#"{"recording":"sdam","version":1,"epoch":null,"options":{"seeds":["a:27017","b:5"],"directConnection":null,"loadBalanced":false,"replicaSet":"rs","initialTopologyType":null,"wireVersions":{"minWireVersion":8,"maxWireVersion":29},"driverName":"sdam","maxServers":1024,"handshakeErrorsMarkUnknown":false}}"#,
            r#"{"seq":1,"at":1000000,"topology":"070707070707070707070707","event":"ServerHeartbeatSucceeded","server":1,"address":"host1:27017","driverConnectionId":1,"serverConnectionId":null,"awaited":false,"duration":1500000,"reply":""}"#,
            r#"{"seq":1,"at":1000000,"topology":"070707070707070707070707","event":"TopologyClosed"}"#,
        ]
    );
    assert!(text.ends_with('\n'));
}

/// A writer that counts the written lines, and those that were flushed and so would survive a kill.
#[derive(Clone, Debug, Default)]
struct Flushed(Arc<Mutex<(usize, usize)>>);

impl Write for Flushed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().0 += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut lines = self.0.lock().unwrap();
        lines.1 = lines.0;
        Ok(())
    }
}

#[test]
fn every_line_but_those_of_selections_is_flushed_at_once() {
    let file = Flushed::default();
    let options = Options::new(vec![address("a")]);
    let sink = RecordSink::new(file.clone(), &options).unwrap();
    let sink = sink.with_selections();
    let check = |lines| assert_eq!(*file.0.lock().unwrap(), lines);
    check((1, 1));
    sink.emit(&event(started(1)));
    check((2, 2));
    sink.emit(&event(selects(&selection())));
    check((3, 2));
    sink.emit(&event(failed(1)));
    check((4, 4));
}

/// A writer that accepts the given number of writes and then fails.
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
    assert_eq!(sink.take_error().unwrap().kind(), io::ErrorKind::StorageFull);
    sink.emit(&event(failed(1)));
    assert!(sink.take_error().is_none(), "it has not tried again");
}
