use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::doc;
use sdam_core::{
    deployment::{ConnId, Input, RecordedInput, Role, Setup, Timer},
    error::{Error, ErrorKind, Stage},
    event::{CheckOutFailure, ConnectionClosedReason, EventKind, EventName, SelectionFailure},
    hello::{Hello, HelloReply},
    ids::{Generation, ObjectId, ServerId, TopologyVersion},
    options::{Options, Srv},
    read_preference::TagSet,
    reply,
    report::ErrorReport,
    server::{Rtt, ServerType},
    srv::SrvRecords,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use super::RecordSink;
use crate::{
    log::tests::logged,
    sink::{EventSink, Interest},
    test_support::{
        address, description, event, failed, selection, selects, server, started, succeeded,
        topology_changed,
    },
};

/// The lines of all events, and the texts of all inputs.
const LINES: &str = include_str!("tests/lines.txt");

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

/// Returns the events that are not logged: changes of a server, a round-trip time, and inputs.
fn unlogged() -> Vec<EventKind> {
    let nanos = Duration::from_nanos;
    let rtt = Rtt { average: nanos(5), minimum: nanos(4), p90: nanos(6) };
    let mut primary = description(1, ServerType::RsPrimary);
    primary.set_name = Some("rs".into());
    primary.hosts = [address("host1"), address("host2")].into();
    primary.tags = TagSet::from_iter([("dc", "ny")]);
    primary.election.set_version = Some(3);
    primary.wire_versions.max = 21;
    primary.rtt = Some(rtt);
    let topology = TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, [primary.clone()]);
    let mut unknown = description(1, ServerType::Unknown);
    unknown.error = Some(error());
    let [primary, unknown] = [primary, unknown].map(Arc::new);
    let changed = |previous: &Arc<_>, new: &Arc<_>| EventKind::ServerDescriptionChanged {
        previous: Arc::clone(previous),
        new: Arc::clone(new),
    };
    let (server, address) = server();
    let closing = RecordedInput { now: Instant::from_nanos(5), input: Input::Close, setup: None };
    vec![
        topology_changed(&TopologyDescription::default(), &topology),
        changed(&unknown, &primary),
        changed(&primary, &unknown),
        EventKind::RttMeasured { server, address, rtt },
        EventKind::Input(Arc::new(closing)),
    ]
}

/// Returns inputs of all kinds.
fn inputs() -> Vec<Input> {
    let (server, at) = (ServerId::from_u64(3), Instant::from_nanos);
    let conn = |role| ConnId { server, role, number: 2 };
    let reply = |role, reply| Input::Reply {
        conn: conn(role),
        sent: at(4),
        at: at(5),
        reply,
        more_to_come: true,
    };
    let document = doc! { "ok": 1 }.to_vec().unwrap();
    let generation = Generation::from_u64(1);
    let service = ObjectId::from_bytes([2; 12]);
    let records = SrvRecords::new(vec![address("a")], Duration::from_nanos(9));
    let mut inputs = vec![
        Input::Open,
        Input::Close,
        Input::Due { timer: Timer::Server(server), wanted: true },
        Input::Connected { conn: conn(Role::Ping) },
        reply(Role::Check, HelloReply::parse(document.clone())),
        reply(Role::Check, HelloReply::parse(vec![1, 2, 3, 4])),
        // Without a document, the line has `null`, or the error.
        reply(Role::Ping, Ok(Hello::default()).into()),
        reply(Role::Ping, Err(error()).into()),
        Input::Failed { conn: conn(Role::Check), at: at(5), error: error() },
        Input::CheckRequested { server },
        Input::Handshake { server, generation, reply: HelloReply::parse(document) },
        Input::ServiceConnectionClosed { server, service, generation },
        Input::Hosts([address("a"), address("b")].into()),
        Input::LookedUp(Ok(records)),
    ];
    let refused = doc! { "ok": 0, "code": 7 }.to_vec().unwrap();
    let refused = reply::error(&refused, Stage::Operation).unwrap();
    let report = |error| ErrorReport::new(generation, error);
    let reports = [
        report(Error::network(Stage::Dns, "m")),
        report(Error::timeout(Stage::Connect, "m")),
        report(Error::protocol(Stage::Tls, "m")),
        report(Error::auth("m")).with_max_wire_version(21),
        report(refused).with_service(service).with_max_wire_version(7),
        report(error()),
    ];
    inputs.extend(reports.map(|report| Input::Error { server, report }));
    inputs
}

#[test]
fn events_and_inputs_are_written_as_documented_and_inputs_are_read_back() {
    let events = logged().into_iter().chain(unlogged());
    let mut lines: Vec<_> =
        events.map(|kind| serde_json::to_string(&event(kind)).unwrap()).collect();
    for input in inputs() {
        let text = serde_json::to_string(&input).unwrap();
        assert_eq!(serde_json::from_str::<Input>(&text).unwrap(), input);
        lines.push(text);
    }
    for (line, expected) in lines.iter().zip(LINES.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), LINES.lines().count());
}

#[test]
fn the_first_input_is_written_with_the_setup() {
    let options = Options::new(vec![address("a")]);
    let mut srv = Srv::new("c.example.com");
    srv.max_hosts = 3;
    let text = r#"{"seed":7,"heartbeatFrequency":10000000000,"minHeartbeatFrequency":500000000,"connectTimeout":10000000000,"streaming":true,"retryBeforeUnknown":false,"scans":{"frequency":60000000000,"tryOnce":true,"socketCheckInterval":5000000000,"immediateCheck":false},"maxHosts":3,"srv":{"host":"c.example.com","service":"mongodb","maxHosts":3,"ttl":0}}"#;
    let setup: Setup = serde_json::from_str(text).unwrap();
    assert_eq!(setup.connect_timeout, options.connect_timeout);
    assert_eq!(setup.srv, Some(srv));
    let now = Instant::from_nanos(5);
    let opening = RecordedInput { now, input: Input::Open, setup: Some(setup) };
    let line = serde_json::to_string(&event(EventKind::Input(Arc::new(opening)))).unwrap();
    assert!(line.ends_with(&format!(r#""now":5,"input":"Open","setup":{text}}}"#)), "{line}");
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

/// A writer that counts the written lines, and the flushed lines, which would survive if the
/// process were killed.
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
