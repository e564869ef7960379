use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bson::{Document, doc};
use sdam_core::{
    deployment::{ConnId, Deployment, Input, Output, Outputs, Role, Timer},
    error::{Error, ErrorKind, Stage},
    event::{EventKind, SelectionFailure},
    hello::{Handshake, Hello, HelloReply},
    ids::{Generation, ServerId},
    monitor::MonitorConfig,
    options::Options,
    report::ErrorReport,
    rng::Rng,
    time::Instant,
    topology::TopologyType,
};

use super::{Lines, ReplayError, read, replay, replay_to};
use crate::{
    queue::EventQueue,
    record::{self, Origin, RecordSink},
    sink::{EventSink, Interest},
    test_support::{
        Recorder, TOPOLOGY, address, at, event, found, not_found, selection, selects, waits,
    },
};

mod malformed;

/// A recorded deployment whose connections are opened and answered by hand.
struct Client {
    deployment: Deployment,
    queue: EventQueue,
    sink: RecordSink<Vec<u8>>,
    events: Arc<Recorder>,
    addresses: BTreeMap<ServerId, sdam_core::address::ServerAddress>,
    /// The open or requested connections of the servers.
    connections: BTreeMap<(ServerId, Role), ConnId>,
    now: Instant,
}

impl Client {
    fn new(options: &Options) -> Self {
        let sink = RecordSink::new(Vec::new(), options).unwrap();
        let mut config = MonitorConfig::new(options, Arc::new(Handshake::new([])), false);
        config.ping_delay = Duration::ZERO;
        let deployment = Deployment::new(options.clone(), Arc::new(config), Rng::new(9));
        Self {
            deployment: deployment.with_recorded_inputs(),
            queue: EventQueue::new(TOPOLOGY, Interest::ALL.union(Interest::INPUTS)),
            sink,
            events: Recorder::shared(),
            addresses: BTreeMap::new(),
            connections: BTreeMap::new(),
            now: Instant::EPOCH,
        }
    }

    fn handle(&mut self, input: Input) {
        let outputs = self.deployment.handle(self.now, input);
        self.run(outputs);
    }

    fn error(&mut self, millis: u64, host: &str, report: &ErrorReport) {
        self.now = at(millis);
        let server = self.id(host);
        let (_, outputs) = self.deployment.handle_error(self.now, server, report);
        self.run(outputs);
    }

    fn run(&mut self, outputs: Outputs) {
        for output in outputs {
            match output {
                Output::Emit(kind) => self.queue.push(self.now, kind),
                Output::PoolReady { server } => {
                    let address = self.addresses[&server].clone();
                    let ready = EventKind::PoolReady { server, address };
                    self.queue.push(self.now, ready);
                }
                Output::PoolClear { server, clear } if !clear.was_paused => {
                    let address = self.addresses[&server].clone();
                    let cleared = EventKind::PoolCleared { server, address, clear };
                    self.queue.push(self.now, cleared);
                }
                Output::OpenServer { server, address, .. } => {
                    self.addresses.insert(server, address);
                }
                Output::Connect { conn, .. } => {
                    self.connections.insert((conn.server, conn.role), conn);
                }
                _ => {}
            }
        }
    }

    fn id(&self, host: &str) -> ServerId {
        let description = self.deployment.description();
        description.server(&address(host)).unwrap().id
    }

    /// Opens a new connection for a check of the server.
    fn connects(&mut self, millis: u64, host: &str) {
        self.now = at(millis);
        let server = self.id(host);
        self.handle(Input::Due { timer: Timer::Server(server), wanted: true });
        let conn = self.connections[&(server, Role::Check)];
        self.handle(Input::Connected { conn });
    }

    /// Answers the pending check of `host` with `reply` at `millis`, after a round trip of 3 ms.
    fn answers(&mut self, millis: u64, host: &str, reply: &Document) {
        let reply = HelloReply::parse(reply.to_vec().unwrap());
        self.reply(millis, (host, Role::Check), reply);
    }

    fn reply(&mut self, millis: u64, (host, role): (&str, Role), reply: HelloReply) {
        self.now = at(millis);
        let server = self.id(host);
        self.handle(Input::Reply {
            conn: self.connections[&(server, role)],
            sent: at(millis - 3),
            at: self.now,
            reply,
            more_to_come: false,
        });
    }

    /// Opens the connection for measurements, and answers the first measurement.
    fn pongs(&mut self, millis: u64, host: &str) {
        let server = self.id(host);
        let conn = self.connections[&(server, Role::Ping)];
        self.now = at(millis - 3);
        self.handle(Input::Connected { conn });
        self.reply(millis, (host, Role::Ping), Ok(Hello::default()).into());
    }

    fn fails(&mut self, millis: u64, host: &str) {
        self.now = at(millis);
        let server = self.id(host);
        self.handle(Input::Failed {
            conn: self.connections[&(server, Role::Check)],
            at: self.now,
            error: Error::new(ErrorKind::Network, Stage::Connect, "refused"),
        });
    }

    /// Returns the recording, and all events.
    fn finish(self) -> (String, Vec<sdam_core::event::Event>) {
        self.queue.drain_now(&*self.events);
        let interest = self.sink.interest();
        for event in self.events.events() {
            if interest.contains(event.kind.name()) {
                self.sink.emit(&event);
            }
        }
        let recording = self.sink.finish().unwrap();
        (String::from_utf8(recording).unwrap(), self.events.events())
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

/// Returns a recording and its events. The recording contains discovery, further replies,
/// measurements, errors of operations of several kinds, a failed check, a dropped task, and a close
/// while heartbeats are under way.
fn recorded() -> (String, Vec<sdam_core::event::Event>) {
    let options = Options::parse("mongodb://a,b/?replicaSet=rs").unwrap();
    let mut client = Client::new(&options);
    client.handle(Input::Open);
    for (millis, host, primary) in [(10, "a", true), (20, "b", false)] {
        client.connects(millis, host);
        client.answers(millis + 5, host, &member(host, primary));
    }
    client.connects(30, "c");
    client.fails(31, "c");
    client.pongs(35, "a");
    let errors = [
        ErrorReport::new(Generation::FIRST, Error::network(Stage::Operation, "reset")),
        ErrorReport::new(Generation::from_u64(1), Error::auth("no")),
        ErrorReport::new(Generation::from_u64(2), Error::protocol(Stage::Operation, "long")),
        ErrorReport::new(Generation::from_u64(2), Error::timeout(Stage::Connect, "slow")),
    ];
    for (millis, error) in (40..).zip(errors) {
        client.error(millis, "a", &error);
    }
    client.answers(50, "b", &member("b", false));
    client.connects(10_050, "a");
    client.answers(10_060, "a", &member("a", true));
    client.pongs(10_070, "a");
    let server = client.id("b");
    client.handle(Input::Deserted { server });
    client.now = at(10_080);
    client.handle(Input::Close);
    client.finish()
}

fn recording() -> String {
    recorded().0
}

#[test]
fn everything_is_replayed_and_observed_with_its_line() {
    let (recording, events) = recorded();
    let texts: Vec<_> = recording.lines().collect();
    let (mut observed, mut measured) = (0, 0);
    let outcome = replay_to(recording.as_bytes(), |line, event| {
        observed += 1;
        if matches!(event.kind, EventKind::RttMeasured { .. }) {
            measured += 1;
        } else {
            let text = record::line(event).unwrap();
            assert_eq!(text.trim_end(), texts[line as usize - 1]);
        }
    });
    let outcome = outcome.unwrap();
    assert_eq!((observed, measured), (events.len(), 5));
    let count = |key: &str| texts.iter().filter(|line| line.contains(key)).count() as u64;
    assert_eq!((outcome.divergence, outcome.inputs), (None, count("\"input\":")));
    assert_eq!(outcome.matched, count("\"event\":"));
    assert!(recording.trim_end().ends_with("\"event\":\"TopologyClosed\"}"));
    assert_eq!(outcome.description.topology_type(), TopologyType::Unknown);
}

#[test]
fn a_reply_is_recorded_once_and_that_to_a_measurement_not_at_all() {
    let recording = recording();
    let reply = member("a", true).to_vec().unwrap();
    let count = |text: &str| recording.matches(text).count();
    assert_eq!(count(&STANDARD.encode(reply)), 2, "of two checks");
    let is_pong = |line: &&str| line.contains("\"Reply\":") && line.contains("\"Ping\"");
    for pong in recording.lines().filter(is_pong) {
        assert!(pong.contains("\"reply\":null") && pong.len() < 220, "{pong}");
    }
}

fn text(event: &sdam_core::event::Event) -> String {
    serde_json::to_string(event).unwrap()
}

#[test]
fn selections_are_observed_with_the_description_at_that_moment() {
    let options = Options::parse("mongodb://a/?replicaSet=rs").unwrap();
    let mut client = Client::new(&options);
    client.handle(Input::Open);
    client.connects(10, "a");
    client.answers(15, "a", &member("a", true));
    let (mut recording, _) = client.finish();
    let selection = selection();
    let kinds = [
        selects(&selection),
        waits(&selection, None),
        found(&selection, Duration::from_millis(3)),
        not_found(&selection, SelectionFailure::TooManyWaiters, Duration::from_millis(4)),
    ];
    let lines: Vec<_> = kinds.map(|kind| text(&event(kind))).into();
    recording += &lines.join("\n");
    let (mut observed, mut types) = (Vec::new(), Vec::new());
    replay_to(recording.as_bytes(), |_, event| match &event.kind {
        EventKind::ServerSelectionStarted { description, .. }
        | EventKind::ServerSelectionWaiting { description, .. }
        | EventKind::ServerSelectionSucceeded { description, .. }
        | EventKind::ServerSelectionFailed { description, .. } => {
            observed.push(text(event));
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
    let origin = Origin::at(at(2000), wall);
    let sink = RecordSink::with_origin(Vec::new(), &options, &origin).unwrap();
    let recording = sink.finish().unwrap();
    let read = replay(&*recording).unwrap().origin;
    assert_eq!(read, origin);
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
    assert!(replay(&recording.as_bytes()[..within]).unwrap().cut_off.is_some());
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
    check(|options| options.deviations.handshake_errors_mark_unknown ^= true);
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
        let part: String = recording.lines().take(length).flat_map(|line| [line, "\n"]).collect();
        let outcome = replay(part.as_bytes()).unwrap();
        assert_eq!(outcome.divergence, None, "{length}");
    }
}

#[test]
fn every_changed_or_missing_event_is_a_divergence() {
    let recording = recording();
    let lines: Vec<&str> = recording.lines().collect();
    let is_event = |place: &usize| lines[*place].contains("\"event\":");
    let places: Vec<_> = (0..lines.len()).filter(is_event).collect();
    assert!(places.len() > 15, "{places:?}");
    for place in places {
        let more = lines[place].replacen("\"event\":", "\"more\":1,\"event\":", 1);
        let mut changed = lines.clone();
        changed[place] = &more;
        let divergence = replay(changed.join("\n").as_bytes()).unwrap().divergence.unwrap();
        assert_eq!((divergence.line, divergence.recorded), (place as u64 + 1, more));
        assert_eq!(divergence.replayed.as_deref(), Some(lines[place]));
        let mut fewer = lines.clone();
        fewer.remove(place);
        // Only the last event may be missing, because a recording may end early.
        let is_missed = replay(fewer.join("\n").as_bytes()).unwrap().divergence.is_some();
        assert_eq!(is_missed, place + 1 < lines.len(), "{}", lines[place]);
    }
}

/// Checks that line `line` of the recording is refused for the given reason.
fn check_refused(recording: &str, line: u64, reason: &str) {
    match replay(recording.as_bytes()) {
        Err(ReplayError::Malformed { line: found, reason: text }) => {
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
fn a_difference_names_its_line_and_both_texts() {
    let recording = recording().replacen("\"PoolReady\"", "\"PoolCleared\"", 1);
    let divergence = replay(recording.as_bytes()).unwrap().divergence.unwrap();
    let message = divergence.to_string();
    let line = &recording.lines().nth(divergence.line as usize - 1).unwrap();
    let expected = line.replace("PoolCleared", "PoolReady");
    let number = divergence.line;
    assert_eq!(message, format!("line {number}: recorded {line}, replayed {expected}"));
}

#[test]
fn only_an_incomplete_line_may_end_within_a_character() {
    let mut lines = Lines::new(&b"a\n\n b\xc3"[..]);
    let first = lines.next().unwrap().unwrap();
    assert_eq!((first.number, &*first.text, first.is_complete), (1, "a", true));
    let last = lines.next().unwrap().unwrap();
    assert_eq!((last.number, &*last.text, last.is_complete), (3, " b\u{fffd}", false));
    assert!(lines.next().unwrap().is_none());
    assert!(Lines::new(&b"b\xc3\n"[..]).next().is_err());
}
