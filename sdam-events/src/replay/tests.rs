use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use bson::{Document, RawDocumentBuf, doc};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{EventKind, Selection, SelectionFailure},
    hello::Hello,
    ids::{Generation, ServerId},
    machine::{Effect, Effects, Input, RecordedInput, TopologyMachine},
    options::Options,
    report::ErrorReport,
    server::Rtt,
    time::Instant,
    topology::TopologyType,
};

use super::{ReplayError, consequence, line, read, replay, replay_to};
use crate::{
    queue::EventQueue,
    record::{Origin, RecordSink},
    sink::EventSink,
    test_support::{TOPOLOGY, address, at, event, failed, heartbeat, started},
};

/// A topology without monitors whose inputs are recorded as in the engine.
struct Topology {
    machine: TopologyMachine,
    queue: EventQueue,
    sink: RecordSink<Vec<u8>>,
    now: Instant,
}

impl Topology {
    fn new(options: &Options) -> Self {
        let sink = RecordSink::new(Vec::new(), options).unwrap();
        Self {
            machine: TopologyMachine::new(options, TOPOLOGY),
            queue: EventQueue::new(TOPOLOGY, sink.interest()),
            sink,
            now: Instant::EPOCH,
        }
    }

    fn tell(&mut self, input: Input<'_>) {
        let recorded = RecordedInput::of(&input).unwrap();
        self.push(EventKind::Input(Arc::new(recorded)));
        let effects = self.machine.handle(self.now, input);
        self.run(effects);
    }

    fn push(&mut self, kind: EventKind) {
        self.queue.push(self.now, kind);
    }

    fn run(&mut self, effects: Effects) {
        let address_of = |topology: &Self, server: ServerId| {
            let description = topology.machine.description();
            description.server_by_id(server).unwrap().address.clone()
        };
        for effect in effects {
            match effect {
                Effect::Emit(kind) => self.push(kind),
                Effect::PoolReady { server } => {
                    let address = address_of(self, server);
                    self.push(EventKind::PoolReady { server, address });
                }
                Effect::PoolClear { server, clear } => {
                    let address = address_of(self, server);
                    self.push(EventKind::PoolCleared {
                        server,
                        address,
                        clear,
                    });
                }
                Effect::OpenServer { .. }
                | Effect::Publish(_)
                | Effect::CloseServer { .. }
                | Effect::ServerKnown { .. }
                | Effect::ResetRtt { .. }
                | Effect::CancelCheck { .. }
                | Effect::RequestCheck { .. } => {}
            }
        }
    }

    fn id(&self, host: &str) -> ServerId {
        self.machine
            .description()
            .server(&address(host))
            .unwrap()
            .id
    }

    fn answers(&mut self, millis: u64, host: &str, reply: &Document) {
        self.now = at(millis);
        let server = self.id(host);
        let reply = RawDocumentBuf::try_from(reply).unwrap();
        let mut heartbeat = heartbeat(server.as_u64());
        heartbeat.address = address(host);
        self.push(EventKind::ServerHeartbeatStarted(heartbeat.clone()));
        self.push(EventKind::ServerHeartbeatSucceeded {
            heartbeat,
            duration: Duration::from_millis(1),
            reply: reply.as_bytes().into(),
        });
        self.tell(Input::Checked {
            server,
            outcome: Ok(Hello::parse(reply.as_bytes()).unwrap()),
            rtt: Some(Rtt::default()),
        });
    }

    fn fails(&mut self, millis: u64, host: &str) {
        self.now = at(millis);
        let server = self.id(host);
        self.push(started(server.as_u64()));
        self.push(failed(server.as_u64()));
        self.tell(Input::Checked {
            server,
            outcome: Err(Error::new(ErrorKind::Timeout, Stage::Connect, "late")),
            rtt: None,
        });
    }

    fn recording(self) -> String {
        self.queue.drain_now(&self.sink);
        assert_eq!(self.queue.sink_failed(), None);
        String::from_utf8(self.sink.finish().unwrap()).unwrap()
    }
}

fn member(name: &str, primary: bool) -> Document {
    let mut reply = doc! {
        "ok": 1, "hosts": ["a", "b", "c"], "setName": "rs", "me": format!("{name}:27017"),
        "minWireVersion": 0, "maxWireVersion": 21, "setVersion": 1,
        "topologyVersion": { "processId": bson::oid::ObjectId::from_bytes([2; 12]), "counter": 6_i64 },
    };
    if primary {
        reply.insert("isWritablePrimary", true);
        reply.insert("electionId", bson::oid::ObjectId::from_bytes([5; 12]));
    } else {
        reply.insert("secondary", true);
    }
    reply
}

/// Returns a recording of discovery, errors of every kind, a failed check, and a close while a
/// heartbeat is under way.
fn recording() -> String {
    let options = Options::parse("mongodb://a,b/?replicaSet=rs").unwrap();
    let mut topology = Topology::new(&options);
    topology.tell(Input::Open);
    topology.answers(10, "a", &member("a", true));
    topology.answers(20, "b", &member("b", false));
    topology.fails(30, "c");
    let server = topology.id("a");
    let errors = [
        ErrorReport::new(Generation::FIRST, Error::network(Stage::Operation, "reset")),
        ErrorReport::new(Generation::from_u64(1), Error::auth("no")),
        ErrorReport::new(
            Generation::from_u64(2),
            Error::protocol(Stage::Operation, "long"),
        ),
        ErrorReport::new(
            Generation::from_u64(2),
            Error::timeout(Stage::Connect, "slow"),
        ),
    ];
    for (millis, error) in (40..).zip(errors) {
        topology.now = at(millis);
        topology.push(EventKind::Input(Arc::new(RecordedInput::of_error(
            server, &error,
        ))));
        let (_, effects) = topology.machine.handle_error(topology.now, server, &error);
        topology.run(effects);
    }
    topology.answers(50, "a", &member("a", true));
    topology.now = at(60);
    topology.tell(Input::MonitorDied { server });
    topology.push(started(2));
    topology.tell(Input::Close);
    topology.now = at(70);
    topology.push(failed(2));
    topology.recording()
}

#[test]
fn a_recording_is_replayed_without_divergence() {
    let recording = recording();
    let outcome = replay(recording.as_bytes()).unwrap();
    assert_eq!(outcome.divergence, None);
    assert_eq!(outcome.inputs, 11);
    let is_replayed = |line: &&str| line.contains("\"event\":") && !line.contains("Heartbeat");
    assert_eq!(
        outcome.matched,
        recording.lines().filter(is_replayed).count() as u64
    );
    assert!(recording.contains("PoolCleared") && recording.contains("PoolReady"));
    assert!(
        recording
            .trim_end()
            .ends_with("\"event\":\"TopologyClosed\"}")
    );
    assert_eq!(outcome.description.topology_type(), TopologyType::Unknown);
}

#[test]
fn everything_but_the_header_is_observed_as_it_was_recorded() {
    let recording = recording();
    let mut observed = Vec::new();
    replay_to(recording.as_bytes(), |event| {
        observed.push(line(event).unwrap());
    })
    .unwrap();
    assert!(recording.lines().skip(1).eq(observed));
}

#[test]
fn selections_are_observed_with_the_description_at_that_moment() {
    let options = Options::parse("mongodb://a/?replicaSet=rs").unwrap();
    let mut topology = Topology::new(&options);
    topology.tell(Input::Open);
    topology.answers(10, "a", &member("a", true));
    let mut recording = topology.recording();
    let selection = Arc::new(Selection::new("{ mode: primary }").with_operation("find", Some(4)));
    let kinds = [
        EventKind::ServerSelectionStarted {
            selection: Arc::clone(&selection),
            description: Arc::default(),
        },
        EventKind::ServerSelectionWaiting {
            selection: Arc::clone(&selection),
            description: Arc::default(),
            remaining: None,
        },
        EventKind::ServerSelectionSucceeded {
            selection: Arc::clone(&selection),
            description: Arc::default(),
            server: ServerId::from_u64(1),
            address: address("a"),
            duration: Duration::from_millis(3),
        },
        EventKind::ServerSelectionFailed {
            selection,
            description: Arc::default(),
            reason: SelectionFailure::TooManyWaiters,
            failure: "full".into(),
            duration: Duration::from_millis(4),
        },
    ];
    let lines: Vec<_> = kinds.map(|kind| line(&event(kind)).unwrap()).into();
    recording += &lines.join("\n");
    let (mut observed, mut types) = (Vec::new(), Vec::new());
    replay_to(recording.as_bytes(), |event| match &event.kind {
        EventKind::ServerSelectionStarted { description, .. }
        | EventKind::ServerSelectionWaiting { description, .. }
        | EventKind::ServerSelectionSucceeded { description, .. }
        | EventKind::ServerSelectionFailed { description, .. } => {
            observed.push(line(event).unwrap());
            types.push(description.topology_type());
        }
        _ => {}
    })
    .unwrap();
    assert_eq!(observed, lines);
    assert_eq!(types, [TopologyType::ReplicaSetWithPrimary; 4]);
}

#[test]
fn the_origin_of_a_recording_is_read_back() {
    let options = Options::new(vec![address("a")]);
    let wall = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let origin = Origin::at(at(2000), wall).with_vantage("web \"1\"");
    let sink = RecordSink::with_origin(Vec::new(), &options, &origin).unwrap();
    let recording = sink.finish().unwrap();
    let read = replay(&*recording).unwrap().origin;
    assert_eq!(read, origin);
    assert_eq!(read.wall(at(2500)), Some(wall + Duration::from_millis(500)));
    assert_eq!(&*read.vantage.unwrap(), "web \"1\"");
}

#[test]
fn recordings_of_earlier_versions_are_replayed() {
    for header in [
        r#""version":2,"#,
        r#""version":3,"epoch":null,"vantage":null,"#,
    ] {
        let own = r#""version":4,"epoch":null,"vantage":null,"#;
        let old = recording().replacen(own, header, 1);
        assert!(old.contains(header) && !old.contains("time\":"));
        let outcome = replay(old.as_bytes()).unwrap();
        assert_eq!(outcome.divergence, None);
        assert_eq!(outcome.origin, Origin::default());
        assert!(outcome.matched > 15);
    }
}

#[test]
fn a_recording_that_ends_within_a_line_is_replayed_up_to_there() {
    let recording = recording().replace("refused", "caf\u{e9}");
    let end = recording.trim_end().len();
    let last = recording[..end].rfind('\n').unwrap() + 1;
    let number = recording.lines().count() as u64;
    for length in last + 1..end {
        let outcome = replay(&recording.as_bytes()[..length]).unwrap();
        assert_eq!(outcome.cut_off, Some(number), "{length}");
        assert_eq!(outcome.divergence, None);
    }
    let whole = replay(&recording.as_bytes()[..end]).unwrap();
    assert_eq!(whole.cut_off, None);
    let within = recording.find('\u{e9}').unwrap() + 1;
    assert!(
        replay(&recording.as_bytes()[..within])
            .unwrap()
            .cut_off
            .is_some()
    );
}

#[test]
fn recorded_options_are_read_back() {
    let header = |options: &Options| {
        let sink = RecordSink::new(Vec::new(), options).unwrap();
        String::from_utf8(sink.finish().unwrap()).unwrap()
    };
    let default = || Options::new(vec![address("a")]);
    let mut known = vec![header(&default())];
    let mut check = |change: fn(&mut Options)| {
        let mut options = default();
        change(&mut options);
        let text = header(&options);
        let (read, _) = read::header(text.trim_end()).unwrap();
        assert_eq!(header(&read), text);
        assert!(!known.contains(&text), "it is recorded: {text}");
        known.push(text);
    };
    check(|options| options.seeds.push(address("b")));
    check(|options| options.direct_connection = Some(true));
    check(|options| options.direct_connection = Some(false));
    check(|options| options.load_balanced = true);
    check(|options| options.replica_set = Some("rs".into()));
    check(|options| options.wire_versions.min = 7);
    check(|options| options.wire_versions.max = 30);
    check(|options| options.driver_name = "other".into());
    check(|options| options.max_servers = 7);
    check(|options| options.handshake_errors_mark_unknown ^= true);
    check(|options| options.initial_topology_type = Some(TopologyType::Unknown));
    check(|options| options.initial_topology_type = Some(TopologyType::Single));
    check(|options| options.initial_topology_type = Some(TopologyType::ReplicaSetNoPrimary));
    check(|options| options.initial_topology_type = Some(TopologyType::ReplicaSetWithPrimary));
    check(|options| options.initial_topology_type = Some(TopologyType::Sharded));
    check(|options| options.initial_topology_type = Some(TopologyType::LoadBalanced));
}

#[test]
fn a_recording_that_ends_after_any_line_is_replayed() {
    let recording = recording();
    let count = recording.lines().count();
    for length in 1..count {
        let part: String = recording
            .lines()
            .take(length)
            .flat_map(|line| [line, "\n"])
            .collect();
        let outcome = replay(part.as_bytes()).unwrap();
        assert_eq!(outcome.divergence, None, "{length}");
    }
}

#[test]
fn every_changed_or_missing_event_is_a_divergence() {
    let recording = recording();
    let lines: Vec<&str> = recording.lines().collect();
    let mut changed = 0;
    for (index, line) in lines.iter().enumerate() {
        if !line.contains("\"event\":") || line.contains("Heartbeat") {
            continue;
        }
        changed += 1;
        let with = |replacement: Option<String>| {
            let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            match replacement {
                Some(line) => lines[index] = line,
                None => {
                    lines.remove(index);
                }
            }
            replay(lines.join("\n").as_bytes()).unwrap()
        };
        let more = line.replacen("\"event\":", "\"more\":1,\"event\":", 1);
        let divergence = with(Some(more.clone())).divergence.unwrap();
        let number = index as u64 + 1;
        assert_eq!((divergence.line, divergence.recorded), (number, more));
        let expected = divergence.replayed.unwrap();
        assert_eq!(consequence(&expected), consequence(line));
        // The event is missing. Only the last one may be, because a recording may end early.
        let is_missed = with(None).divergence.is_some();
        assert_eq!(is_missed, index + 1 < lines.len(), "{line}");
    }
    assert!(changed > 15, "{changed}");
}

/// Checks that line `line` of the recording is refused with this reason.
fn check_refused(recording: &str, line: u64, reason: &str) {
    match replay(recording.as_bytes()) {
        Err(ReplayError::Malformed {
            line: found,
            reason: text,
        }) => {
            assert_eq!(found, line, "{text}");
            assert!(text.contains(reason), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn header() -> String {
    recording().lines().next().unwrap().to_owned()
}

#[test]
fn a_malformed_header_is_refused_with_the_column_and_the_reason() {
    let header = header();
    let check = |text: &str, reason: &str| check_refused(text, 1, reason);
    check("", "empty");
    check("x", "column 1: expected value");
    check("{}", "column 2: missing field `recording`");
    let changed = |from: &str, to: &str| header.replace(from, to);
    check(
        &changed("\"sdam\",\"version", "\"x\",\"version"),
        "a recording of `x`",
    );
    check(&changed("\"version\":4", "\"version\":1"), "version 1");
    check(&changed("\"version\":4", "\"version\":5"), "version 5");
    check(
        &changed("\"loadBalanced\":false,", ""),
        "missing field `loadBalanced`",
    );
    check(
        &changed("\"maxServers\"", "\"most\""),
        "unknown field `most`, expected one of `seeds`",
    );
    check(&changed("\"a:27017\"", "\"a:x\""), "column 86: `a:x`");
}

#[test]
fn a_malformed_line_is_refused_with_its_number_the_column_and_the_reason() {
    let header = header();
    let check = |line: &str, reason: &str| {
        check_refused(&format!("{header}\n{line}\n"), 2, reason);
    };
    check(
        r#"{"seq":1,"at":-1}"#,
        "column 16: invalid value: integer `-1`",
    );
    check(
        r#"{"seq":1,"at":1,"topology":"0"}"#,
        "column 31: `0` is not 24 hexadecimal digits",
    );
    let check_line = |rest: &str, reason: &str| {
        let common = r#""seq":1,"at":1,"topology":"000000000000000000000000""#;
        check(&format!("{{{common},{rest}}}"), reason);
    };
    check_line(r#""at":2"#, "duplicate field `at`");
    check_line(
        r#""input":"Jump""#,
        "unknown variant `Jump`, expected one of `Open`",
    );
    check_line(
        r#""event":"Jump""#,
        "unknown variant `Jump`, expected one of `TopologyOpening`",
    );
    check_line(r#""more":1"#, "unknown field `more`");
    check_line(r#""input":"Open","more":1"#, "unknown field `more`");
    check_line(
        r#""input":{"MonitorDied":{"server":1,"more":1}}"#,
        "unknown field `more`, expected `server`",
    );
    check_line(r#""input":{"MonitorDied":{}}"#, "missing field `server`");
    check_line(
        r#""input":{"MonitorDied":{"server":"x"}}"#,
        "column 90: invalid type: string",
    );
    check_line(r#""input":{"Checked":{"server":9}}"#, "no heartbeat");
    check_line(
        r#""input":{"Checked":{"server":9,"error":{"kind":"network","stage":"none"}}}"#,
        "unknown variant `none`, expected one of `check_out`, `dns`",
    );
    check_line(
        r#""input":{"Checked":{"server":9,"rtt":{"average":1,"minimum":1}}}"#,
        "missing field `p90`",
    );
    check_line(
        r#""input":{"Handshake":{"server":1,"generation":0,"reply":"?"}}"#,
        "not base64",
    );
    let heartbeat = |rest: &str| {
        format!(
            r#""event":"ServerHeartbeatSucceeded","server":1,"address":"a:1","driverConnectionId":1,"awaited":false,"duration":1{rest}"#
        )
    };
    check_line(
        &heartbeat(""),
        "ServerHeartbeatSucceeded has `duration` and `reply`",
    );
    check_line(
        r#""event":"ServerSelectionFailed","selector":"s","reason":"timeout""#,
        "ServerSelectionFailed has `reason`, `failure` and `duration`",
    );
    check_line(&heartbeat(r#","reply":"?""#), "`reply` is not base64");
    check_line(
        &heartbeat(r#","reply":"","more":1"#),
        "unknown field `more`",
    );
}
