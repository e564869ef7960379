//! Tests of the checks of one server: scripted inputs at given times, and the expected outputs.

use std::fmt::Write as _;

use bson::{Document, RawDocumentBuf, doc};

use super::world::*;
use crate::{
    event::Heartbeat,
    hello::{HelloReply, HelloRequest},
    options::{HandshakeOpcode, ServerApi},
};

/// An input of a script.
#[derive(Clone, Debug)]
enum Say {
    Due,
    Connected,
    Reply {
        document: Vec<u8>,
        more: bool,
    },
    Failed(ErrorKind),
    Request,
    /// A pooled connection breaks.
    Cancel,
    /// An operation closes the connection of the checks.
    Disconnected,
}

const NAME: &str = "db.lan";

/// Returns the reply of a server that supports hello but not streaming.
fn old() -> Document {
    doc! { "ok": 1, "maxWireVersion": 8, "helloOk": true, "connectionId": 42 }
}

/// Returns a reply that supports streaming, from the given server process, with the given counter
/// in its topology version.
fn new(process: u8, counter: i64) -> Document {
    let process = bson::oid::ObjectId::from_bytes([process; 12]);
    let mut reply = old();
    reply.insert("topologyVersion", doc! { "processId": process, "counter": counter });
    reply
}

fn refusal() -> Document {
    doc! { "ok": 0, "code": 91, "errmsg": "shutting down" }
}

fn bytes(document: Document) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

fn says(document: Document) -> Say {
    Say::Reply { document: bytes(document), more: false }
}

fn streams(document: Document) -> Say {
    Say::Reply { document: bytes(document), more: true }
}

/// Runs the script. Each step consists of a time in milliseconds, an input, and the expected
/// outputs for checks and pools in order, followed by `|` and the deadline of the checks in
/// milliseconds.
#[track_caller]
fn check(options: &Options, script: &[(u64, Say, &str)]) {
    let mut world = World::new(options);
    world.deployment = world.deployment.with_recorded_inputs();
    world.now = Instant::EPOCH;
    let _ = world.handle(Input::Open);
    for (index, (at, say, expected)) in script.iter().enumerate() {
        world.now = Instant::from_millis(*at);
        let (said, input) = world.input(say);
        let _ = world.handle(input);
        let words = world.last.iter().filter_map(|output| describe(output, &said));
        let words = words.collect::<Vec<_>>().join(", ");
        let check = &world.deployment.servers.get(world.id(NAME)).unwrap().check;
        let deadline = check.deadline().unwrap().since(Instant::EPOCH).as_millis();
        let actual = format!("{words} | {deadline}");
        assert_eq!(actual.trim_start(), *expected, "step {index}, at {at}: {say:?}");
    }
}

impl World {
    /// Returns the input, and the document that it contains.
    fn input(&self, say: &Say) -> (Vec<u8>, Input) {
        let conn = self.conn(NAME, Role::Check);
        let (server, at) = (conn.server, self.now);
        let mut said = Vec::new();
        let input = match say {
            Say::Due => Input::Due { timer: Timer::Server(server), wanted: false },
            Say::Connected => Input::Connected { conn },
            Say::Reply { document, more } => {
                said.clone_from(document);
                let (sent, reply) = (self.asked[&conn], HelloReply::parse(said.clone()));
                Input::Reply { conn, sent, at, reply, more_to_come: *more }
            }
            Say::Failed(kind) => {
                let error = Error::new(*kind, Stage::Connect, "scripted");
                Input::Failed { conn, at, error }
            }
            Say::Request => Input::CheckRequested { server },
            Say::Cancel => {
                let generation = self.deployment.generation(server, None).unwrap();
                let error = Error::network(Stage::Operation, "reset");
                Input::Error { server, report: ErrorReport::new(generation, error) }
            }
            Say::Disconnected => Input::ConnectionLost { conn },
        };
        (said, input)
    }
}

fn describe(output: &Output, said: &[u8]) -> Option<String> {
    Some(match output {
        Output::Connect { conn, .. } | Output::Send { conn, .. } | Output::Disconnect { conn }
            if conn.role != Role::Check =>
        {
            return None;
        }
        Output::Connect { .. } => "connect".into(),
        Output::Send { request, .. } => describe_request(request),
        Output::Read { .. } => "read".into(),
        Output::Disconnect { .. } => "disconnect".into(),
        Output::PoolClear { .. } => "clear".into(),
        Output::Emit(event) => return describe_event(event, said),
        _ => return None,
    })
}

fn describe_request(request: &HelloRequest) -> String {
    let mut text = format!("send {}", request.command_name());
    if request.handshake.is_some() {
        text += " handshake";
    }
    if let Some((version, wait)) = request.awaiting {
        let process = version.process_id.bytes()[0];
        write!(text, " awaiting {process:x}/{} for {wait}", version.counter).unwrap();
    }
    if request.exhaust_allowed {
        text += " exhaust";
    }
    if request.op_query {
        text += " op_query";
    }
    if let Some(api) = &request.server_api {
        write!(text, " api {}", api.version).unwrap();
    }
    text
}

/// Returns an event as a string, and checks the fields that the string omits (J-6, J-7, J-8).
fn describe_event(event: &EventKind, said: &[u8]) -> Option<String> {
    let check = |heartbeat: &Heartbeat| {
        assert_eq!(heartbeat.address.host(), NAME);
        let connection = heartbeat.connection;
        let server = connection.server.map_or(String::new(), |server| format!("/{server}"));
        let awaited = if heartbeat.awaited { " awaited" } else { "" };
        format!("#{}{server}{awaited}", connection.driver)
    };
    Some(match event {
        EventKind::ServerHeartbeatStarted(heartbeat) => format!("started {}", check(heartbeat)),
        EventKind::ServerHeartbeatSucceeded { heartbeat, duration, reply } => {
            assert_eq!(&**reply, said, "the reply itself is published");
            format!("succeeded {} after {}", check(heartbeat), duration.as_millis())
        }
        EventKind::ServerHeartbeatFailed { heartbeat, duration, failure } => {
            let (duration, kind) = (duration.as_millis(), failure.kind());
            format!("failed {} after {duration}: {kind:?}", check(heartbeat))
        }
        EventKind::RttMeasured { .. } => "measured".into(),
        _ => return None,
    })
}

fn polling() -> Options {
    polled(&[NAME])
}

/// Runs the script for a server that was first polled at 0 ms and is polled again at 10 s.
#[track_caller]
fn poll(options: &Options, rest: &[(u64, Say, &str)]) {
    let known = [
        (0, Say::Due, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (0, says(old()), "succeeded #1/42 after 0, measured | 10000"),
        (10_000, Say::Due, "started #1/42, send hello | 20000"),
    ];
    check(options, &[&known, rest].concat());
}

/// Runs the script for a server to which an awaitable hello was sent at 1 ms.
#[track_caller]
fn stream(rest: &[(u64, Say, &str)]) {
    let begun = [
        (0, Say::Due, "started #1, connect | 10000"),
        (0, Say::Connected, "send isMaster handshake | 10000"),
        (
            1,
            says(new(0x11, 1)),
            "succeeded #1/42 after 1, measured, started #1/42 awaited, \
             send hello awaiting 11/1 for 10000 exhaust | 20001",
        ),
    ];
    check(&options(&[NAME]), &[&begun, rest].concat());
}

#[test]
fn durations_and_samples_are_the_time_on_the_wire_whenever_the_reply_is_processed() {
    // The time between the reply's arrival and its processing does not count (J-7, G-5).
    let at = Instant::from_millis;
    let twenty = Duration::from_millis(20);
    for fails in [false, true] {
        let mut world = World::new(&polling());
        world.now = Instant::EPOCH;
        let _ = world.handle(Input::Open);
        let _ = world.due(NAME, false);
        world.wait_until(5);
        let conn = world.conn(NAME, Role::Check);
        let _ = world.connected(conn);
        world.wait_until(9_000);
        let _ = world.handle(if fails {
            Input::Failed { conn, at: at(25), error: Error::network(Stage::Hello, "reset") }
        } else {
            let (sent, at, reply) = (at(7), at(27), Ok(standalone()).into());
            Input::Reply { conn, sent, at, reply, more_to_come: false }
        });
        assert_eq!(world.deadline(NAME, false), Some(19_000), "the pause begins with the call");
        let took = world.last.iter().find_map(|output| match output {
            Output::Emit(
                EventKind::ServerHeartbeatSucceeded { duration, .. }
                | EventKind::ServerHeartbeatFailed { duration, .. },
            ) => Some(*duration),
            _ => None,
        });
        assert_eq!(took, Some(twenty));
        let sample = world.deployment.rtt(conn.server).map(|rtt| rtt.average);
        assert_eq!(sample, (!fails).then_some(twenty));
    }
}

#[test]
fn the_handshake_is_the_first_check_and_later_hellos_have_no_arguments_of_it() {
    // The check begins with connecting, but its duration and the sample begin with the hello. The
    // duration of a poll is also a sample (F-6, F-8, F-9, G-4, G-6, J-10, J-30). Requests during a
    // check are ignored and not remembered (F-41, F-42).
    let script = [
        (0, Say::Due, "started #1, connect | 10000"),
        (1, Say::Request, "| 10000"),
        (30, Say::Connected, "send isMaster handshake | 10030"),
        (31, Say::Request, "| 10030"),
        (35, says(old()), "succeeded #1/42 after 5, measured | 10035"),
        (10_035, Say::Due, "started #1/42, send hello | 20035"),
        (10_042, says(old()), "succeeded #1/42 after 7, measured | 20042"),
    ];
    check(&polling(), &script);
}

#[test]
fn hello_is_sent_if_the_last_reply_had_hello_ok_or_an_api_is_declared() {
    // A declared API requires `hello`, regardless of `helloOk` in the reply (F-5, F-6, F-7).
    let declined = || says(doc! { "ok": 1, "maxWireVersion": 8 });
    let script = [
        (10_000, declined(), "succeeded #1/42 after 0, measured | 20000"),
        (20_000, Say::Due, "started #1/42, send isMaster | 30000"),
    ];
    poll(&polling(), &script);
    let mut declared = polling();
    declared.server_api = Some(ServerApi::v1());
    let script = [
        (0, Say::Due, "started #1, connect | 10000"),
        (0, Say::Connected, "send hello handshake api 1 | 10000"),
        (0, declined(), "succeeded #1 after 0, measured | 10000"),
        (10_000, Say::Due, "started #1, send hello api 1 | 20000"),
    ];
    check(&declared, &script);
}

#[test]
fn op_query_is_used_until_a_reply_shows_support_of_op_msg() {
    // Before MongoDB 3.6, servers do not support OP_MSG (O-2).
    let mut options = options(&[NAME]);
    options.handshake_opcode = HandshakeOpcode::OpQuery;
    for (wire, later) in [
        (5, "started #1, send isMaster op_query | 20000"),
        (6, "started #1, send isMaster | 20000"),
    ] {
        let reply = says(doc! { "ok": 1, "maxWireVersion": wire });
        let script = [
            (0, Say::Due, "started #1, connect | 10000"),
            (0, Say::Connected, "send isMaster handshake op_query | 10000"),
            (0, reply, "succeeded #1 after 0, measured | 10000"),
            (10_000, Say::Due, later),
        ];
        check(&options, &script);
    }
}

#[test]
fn a_connection_that_an_operation_closed_is_replaced_by_the_next_check() {
    let script = [
        // No operation uses the connection while the check runs, so this input is ignored.
        (10_001, Say::Disconnected, "| 20000"),
        (10_002, says(old()), "succeeded #1/42 after 2, measured | 20002"),
        (10_100, Say::Disconnected, "| 20002"),
        // The closed connection has not changed the server's description.
        (20_002, Say::Due, "started #2, connect | 30002"),
        (
            20_003,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #2 after 1: Network, clear, started #3, connect | 30003",
        ),
    ];
    poll(&polling(), &script);
}

#[test]
fn a_network_error_of_a_known_server_is_retried_once_without_a_pause() {
    // The retry is a separate heartbeat (F-50, F-51, F-52, J-33).
    let script = [
        (
            10_005,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #1/42 after 5: Network, clear, started #2, connect | 20005",
        ),
        (
            10_006,
            Say::Failed(ErrorKind::Network),
            "disconnect, failed #2 after 1: Network, clear | 20006",
        ),
        (10_100, Say::Request, "| 10506"),
        (10_506, Say::Due, "started #3, connect | 20506"),
    ];
    poll(&polling(), &script);
    // A timeout counts as a network error (F-10).
    let script = [
        (19_999, Say::Due, "| 20000"),
        (
            20_000,
            Say::Due,
            "disconnect, failed #1/42 after 10000: Timeout, clear, started #2, connect | 30000",
        ),
        (30_000, Say::Due, "disconnect, failed #2 after 10000: Timeout, clear | 40000"),
    ];
    poll(&polling(), &script);
}

#[test]
fn command_errors_and_malformed_replies_are_not_retried_at_once() {
    // These failures are followed by the normal wait (F-34, F-52, J-33).
    let failed = |kind| format!("disconnect, failed #1/42 after 1: {kind}, clear | 20001");
    let refused = failed("Command");
    poll(&polling(), &[(10_001, says(refusal()), &refused)]);
    let malformed = failed("Protocol");
    for document in [Vec::new(), [0xff; 7].into(), doc! {}.to_vec().unwrap()] {
        let reply = Say::Reply { document, more: false };
        poll(&polling(), &[(10_001, reply, &malformed)]);
    }
    stream(&[(
        1_000,
        says(refusal()),
        "disconnect, failed #1/42 awaited after 999: Command, clear | 11000",
    )]);
}

#[test]
fn legacy_retry_reports_only_the_outcome_of_the_retry() {
    // Each heartbeat ends, even if its failure is not reported (F-50, J-33).
    let mut legacy = polling();
    legacy.deviations.retry_before_unknown = true;
    let run = |rest: &[(u64, Say, &str)]| {
        let retry = "disconnect, failed #1/42 after 1: Network, started #2, connect | 20001";
        let retry = [(10_001, Say::Failed(ErrorKind::Network), retry)];
        poll(&legacy, &[&retry, rest].concat());
    };
    let connected = || (10_001, Say::Connected, "send isMaster handshake | 20001");
    run(&[connected(), (10_002, says(old()), "succeeded #2/42 after 1, measured | 20002")]);
    run(&[(
        10_002,
        Say::Failed(ErrorKind::Timeout),
        "disconnect, failed #2 after 1: Timeout, clear | 20002",
    )]);
    let failed = "disconnect, failed #2 after 1: Command, clear | 20002";
    run(&[connected(), (10_002, says(refusal()), failed)]);
}

#[test]
fn a_deadline_missed_by_a_heartbeat_means_that_the_host_was_suspended() {
    // The interrupted check is extended once, by one second. A reply within that second saves the
    // connection, but it neither measures the round trip nor describes the server's current state.
    let suspended = |rest: &[(u64, Say, &str)]| {
        poll(&polling(), &[&[(50_000, Say::Due, "| 51000")], rest].concat());
    };
    let late = || (50_010, says(old()), "send hello | 60010");
    suspended(&[late(), (50_013, says(old()), "succeeded #1/42 after 3, measured | 60013")]);
    let lost = "disconnect, failed #1/42 after 10000: Timeout, clear, started #2, connect | 70010";
    suspended(&[late(), (60_010, Say::Due, lost)]);
    let lost = "disconnect, failed #1/42 after 80000: Timeout, clear, started #2, connect | 100000";
    suspended(&[(90_000, Say::Due, lost)]);
    poll(&polling(), &[(30_001, Say::Due, "| 31001")]);
    let lost = "disconnect, failed #1/42 after 20000: Timeout, clear, started #2, connect | 40000";
    poll(&polling(), &[(30_000, Say::Due, lost)]);
}

#[test]
fn streamed_replies_are_reported_one_by_one_and_nothing_is_sent() {
    // Each read is a heartbeat (F-11, F-22, F-23, F-30, F-31, F-32, F-35, G-5, G-8, J-9, J-32).
    stream(&[
        (
            9_000,
            streams(new(0x11, 2)),
            "succeeded #1/42 awaited after 8999, started #1/42 awaited, read | 29000",
        ),
        (
            19_000,
            streams(new(0x11, 2)),
            "succeeded #1/42 awaited after 10000, started #1/42 awaited, read | 39000",
        ),
    ]);
}

#[test]
fn a_stream_without_pauses_is_closed_and_requested_on_another_connection() {
    // The hello before these replies also counts toward the limit of 50.
    let goes_on = "succeeded #1/42 awaited after 0, started #1/42 awaited, read | 20001";
    let pushed = |count| (0..count).map(|_| (1, streams(new(0x11, 2)), goes_on));
    let cut = [
        (1, streams(new(0x11, 2)), "succeeded #1/42 awaited after 0, disconnect | 501"),
        // A requested check cannot shorten the wait, and an operation's error has nothing to
        // cancel.
        (1, Say::Request, "| 501"),
        (2, Say::Cancel, "clear | 501"),
        (501, Say::Due, "started #2, connect | 10501"),
    ];
    stream(&pushed(49).chain(cut).collect::<Vec<_>>());
    // Retries count, too, so that a server that breaks each connection is checked with pauses
    // (F-51).
    let failed = "disconnect, failed #1/42 awaited after 0: Network, clear";
    let (last, paused) =
        (format!("{failed}, started #2, connect | 10001"), format!("{failed} | 501"));
    for (count, next) in [(48, &*last), (49, &*paused)] {
        let broken = [(1, Say::Failed(ErrorKind::Network), next)];
        stream(&pushed(count).chain(broken).collect::<Vec<_>>());
    }
}

#[test]
fn a_stream_of_twenty_replies_a_second_is_never_closed() {
    let pushed: Vec<_> = (1..1000)
        .map(|count| {
            let at = 1 + 50 * count;
            let read = at + 20_000;
            let told = "succeeded #1/42 awaited after 50, started #1/42 awaited, read";
            (at, streams(new(0x11, count as i64)), format!("{told} | {read}"))
        })
        .collect();
    let script = pushed.iter().map(|(at, say, told)| (*at, say.clone(), &**told));
    stream(&script.collect::<Vec<_>>());
}

#[test]
fn a_stream_that_ends_is_requested_again_with_the_last_version() {
    // The next request contains the version of the last reply, even if that is older, from another
    // process, or was rejected by the topology (F-33, F-36, F-37, F-38, J-34).
    let mut script = Vec::new();
    for (at, reply, next) in [
        (11, new(0x11, 7), "send hello awaiting 11/7 for 10000 exhaust"),
        (21, new(0x11, 6), "send hello awaiting 11/6 for 10000 exhaust"),
        (31, new(0x22, 0), "read"),
        (41, new(0x22, 1), "send hello awaiting 22/1 for 10000 exhaust"),
    ] {
        let reply = if next == "read" { streams(reply) } else { says(reply) };
        let told = "succeeded #1/42 awaited after 10, started #1/42 awaited";
        script.push((at, reply, format!("{told}, {next} | {}", at + 20_000)));
    }
    let script = script.iter().map(|(at, say, told)| (*at, say.clone(), &**told));
    stream(&script.collect::<Vec<_>>());
}

#[test]
fn a_reply_without_a_version_ends_streaming_unless_more_is_to_come() {
    // Polls measure round trips again (F-22, F-25, G-6, G-8).
    stream(&[
        (
            10,
            streams(old()),
            "succeeded #1/42 awaited after 9, started #1/42 awaited, read | 20010",
        ),
        (20, says(old()), "succeeded #1/42 awaited after 10 | 10020"),
        (10_020, Say::Due, "started #1/42, send hello | 20020"),
        (
            10_023,
            says(new(0x11, 3)),
            "succeeded #1/42 after 3, measured, started #1/42 awaited, \
             send hello awaiting 11/3 for 10000 exhaust | 30023",
        ),
    ]);
}

#[test]
fn a_broken_stream_restarts_with_a_handshake_at_once() {
    // The checks negotiate again (F-34, F-51, O-1).
    for kind in [ErrorKind::Network, ErrorKind::Timeout] {
        let failed = format!(
            "disconnect, failed #1/42 awaited after 999: {kind:?}, clear, started #2, connect \
             | 11000"
        );
        stream(&[
            (1_000, Say::Failed(kind), &failed),
            (1_001, Say::Connected, "send isMaster handshake | 11001"),
            (
                1_002,
                says(new(0x11, 9)),
                "succeeded #2/42 after 1, measured, started #2/42 awaited, \
                 send hello awaiting 11/9 for 10000 exhaust | 21002",
            ),
        ]);
    }
}

#[test]
fn a_cancelled_check_fails_its_heartbeat_and_the_next_comes_a_heartbeat_later() {
    // The end of the heartbeat is not an outcome of the check (F-71, F-73, G-14, I-18, J-31).
    let cancelled = "clear, disconnect, failed #1/42 awaited after 4999: Cancelled | 15000";
    stream(&[(5_000, Say::Cancel, cancelled), (15_000, Say::Due, "started #2, connect | 25000")]);
}

/// Returns a `World` that streams from its only server, and has connected to it for measurements at
/// 1000 ms.
fn measuring() -> (World, ConnId) {
    let mut world = World::open(&options(&["a"]));
    let _ = world.check("a", member(true, 1));
    let ping = world.conn("a", Role::Ping);
    assert_eq!(world.connected(ping), ["hello on a1 for pings"]);
    (world, ping)
}

#[test]
fn after_an_error_measurements_go_on_a_heartbeat_later_on_another_connection() {
    // A new connection negotiates again (G-11, G-13).
    for answer in ["error", "failure", "timeout"] {
        let (mut world, ping) = measuring();
        let at = world.now;
        let outputs = match answer {
            "error" => {
                let reply = Err(Error::new(ErrorKind::Command, Stage::Hello, "no")).into();
                world.handle(Input::Reply { conn: ping, sent: at, at, reply, more_to_come: false })
            }
            "failure" => world.failed(ping, ErrorKind::Network),
            _ => {
                world.wait_until(11_000);
                world.due("a", false)
            }
        };
        assert_eq!(outputs, ["disconnect a1 for pings"], "{answer}");
        let next = world.deployment.servers.get(ping.server).unwrap().ping.deadline();
        assert_eq!(next, Some(world.now + Duration::from_secs(11)), "{answer}");
        world.now = next.unwrap();
        assert!(world.due("a", false).contains(&"connect a2 for pings".into()), "{answer}");
        let conn = world.conn("a", Role::Ping);
        let _ = world.connected(conn);
        let Some(Output::Send { request, .. }) = world.last.first() else {
            panic!("{:?}", world.last);
        };
        assert!(request.handshake.is_some(), "{answer}");
    }
}

#[test]
fn the_sample_of_a_measurement_is_the_time_on_the_wire() {
    // The time between a reply's arrival and its processing is not part of the sample (G-7, G-11).
    for (sent, at, now, sample) in [
        (5, 25, 25, Some(20)),
        (5, 25, 8_000, Some(20)),
        // Both replies are processed after the deadline; only the second arrives after it.
        (5, 25, 10_500, Some(20)),
        (5, 10_001, 10_500, None),
        // Instants are clamped: a reply arrives after its request and before it is processed.
        (30, 25, 40, Some(0)),
        (5, 50, 40, Some(35)),
    ] {
        let (mut world, conn) = measuring();
        world.wait_until(1_000 + now);
        let [sent, at] = [sent, at].map(|millis| Instant::from_millis(1_000 + millis));
        let reply = Ok(member(true, 1)).into();
        let _ = world.handle(Input::Reply { conn, sent, at, reply, more_to_come: false });
        let average = world.deployment.servers.get(conn.server).unwrap().rtt.average_millis();
        // The first sample, from the check, was zero; the new sample has a weight of a fifth.
        assert_eq!(average, Some(sample.map_or(0.0, f64::from) / 5.0), "{sent:?} {at:?}");
    }
}
