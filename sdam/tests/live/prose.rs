//! Runs the prose tests for monitoring, and tests a client process that was suspended.
//!
//! The tests take times from events and never sleep. Each test has its own server, so that a fail
//! point affects only the hellos of the client under test.

mod suspend;

use std::{io::Read, net::TcpListener};

use sdam::{Clock, runtime::Instant};

use super::*;

/// The `heartbeatFrequencyMS` of these tests.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The default `heartbeatFrequencyMS`.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(10);

/// The number of streamed replies over which the frequency is measured.
const REPLIES: u32 = 8;

/// The value that the average round-trip time must exceed while each hello takes [`HEARTBEAT`].
const SLOW: Duration = Duration::from_millis(250);

/// The maximum number of checks to delay. After four checks that take [`HEARTBEAT`] each, the
/// average exceeds [`SLOW`], whatever it was before.
const MOST_HELD: usize = 20;

/// Starts a topology that connects directly to this server.
fn observe(mongod: &Mongod, options: &str) -> Observer {
    let host = mongod.host();
    Observer::start(&format!("mongodb://{host}/?directConnection=true{options}"))
}

/// Returns whether the server streams, as all servers since 4.4 do.
fn streams(mongod: &Mongod) -> bool {
    mongod.hello().unwrap().contains_key("topologyVersion")
}

/// Returns a fail point for every kind of hello.
fn any_hello() -> FailCommand {
    FailCommand::new(["hello", "isMaster"])
}

fn started(kind: &EventKind) -> Option<bool> {
    match kind {
        EventKind::ServerHeartbeatStarted(heartbeat) => Some(heartbeat.awaited),
        _ => None,
    }
}

fn succeeded(kind: &EventKind) -> Option<bool> {
    match kind {
        EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => Some(heartbeat.awaited),
        _ => None,
    }
}

/// Returns the new average round-trip time if the event reports a measurement.
fn average(kind: &EventKind) -> Option<Duration> {
    match kind {
        EventKind::RttMeasured { rtt, .. } => Some(rtt.average),
        _ => None,
    }
}

/// F-30, F-32, F-24: a streaming server sends a reply every `heartbeatFrequencyMS`; a polled server
/// is checked just as often.
#[test]
#[ignore = "deep: real servers"]
fn streaming_1_replies_come_once_per_heartbeat() {
    let Some(mongod) = standalone() else { return };
    let streams = streams(&mongod);
    let observer = observe(&mongod, "&heartbeatFrequencyMS=500");
    let is_steady = |awaited: &bool| *awaited == streams;
    let (_, mut mark) =
        observer.wait_for("the first steady check", 0, |kind| started(kind).filter(is_steady));
    let first = observer.events()[mark - 1].at;
    for _ in 0..REPLIES {
        (_, mark) =
            observer.wait_for("the next reply", mark, |kind| succeeded(kind).filter(is_steady));
    }
    let passed = observer.events()[mark - 1].at.since(first);
    // A machine under load may read replies late, but never early, so this lower limit always
    // holds.
    assert!(passed > HEARTBEAT * (REPLIES - 1), "{passed:?}");
    assert!(passed < DEFAULT_HEARTBEAT * REPLIES / 2, "{passed:?}");
    observer.finish();
}

/// G-15, G-4, G-6, G-7, G-10: a known server always has a round-trip time, and the average follows
/// the server's response time, both with streaming and with polling.
#[test]
#[ignore = "deep: real servers"]
fn rtt_1_every_description_has_a_time_and_the_average_follows_the_server() {
    let Some(mongod) = standalone() else { return };
    let observer = observe(&mongod, "&heartbeatFrequencyMS=500");
    if streams(&mongod) {
        observer.wait_for("a streamed reply", 0, |kind| succeeded(kind).filter(|awaited| *awaited));
        let slow = any_hello().block_for(HEARTBEAT);
        let slow = mongod.fail_command(slow).unwrap();
        let mark = observer.events().len();
        observer.wait_for("the average to rise", mark, |kind| {
            average(kind).filter(|average| *average > SLOW)
        });
        slow.disable().unwrap();
    } else {
        let (_, mut mark) = observer.wait_for("a polled reply", 0, average);
        let risen = (0..MOST_HELD).any(|_| {
            hold_next_check(&mongod, &observer, mark);
            let latest;
            (latest, mark) = observer.wait_for("the check to end", mark, average);
            latest > SLOW
        });
        assert!(risen, "the average has not risen");
        check_polled_average(&observer.events()[..mark]);
    }
    let mut changes = 0;
    for event in observer.events() {
        if let EventKind::ServerDescriptionChanged { new, .. } = event.kind
            && new.server_type != ServerType::Unknown
        {
            assert!(!new.rtt.unwrap().average.is_zero());
            changes += 1;
        }
    }
    assert!(changes > 0);
    observer.finish();
}

/// Delays the check that begins after `mark` by [`HEARTBEAT`]. This is for 4.2 servers, whose
/// `failCommand` cannot delay commands. On a machine under load, the check may end before this
/// function can delay it.
fn hold_next_check(mongod: &Mongod, observer: &Observer, mark: usize) {
    let held = mongod.fail_point("waitInIsMaster", "alwaysOn", Document::new()).unwrap();
    observer.wait_for("a check to be held", mark, started);
    let sleep = doc! { "sleep": 1, "millis": HEARTBEAT.as_millis() as i64, "lock": "none" };
    mongod.run_command("admin", sleep).unwrap();
    held.disable().unwrap();
}

/// G-1, G-6: each polling check is a sample of the round-trip time, and its event contains the
/// duration.
fn check_polled_average(events: &[Event]) {
    let mut expected: Option<f64> = None;
    for event in events {
        if let EventKind::ServerHeartbeatSucceeded { duration, .. } = &event.kind {
            let sample = duration.as_secs_f64();
            expected = Some(expected.map_or(sample, |before| 0.2 * sample + 0.8 * before));
        }
        if let Some(average) = average(&event.kind) {
            let off = average.as_secs_f64() - expected.unwrap();
            assert!(off.abs() < 1e-6, "{average:?} instead of {expected:?} s");
        }
    }
}

/// F-41, F-44, F-52: a selection speeds up checks, but each check begins at least 500 ms after the
/// previous one.
#[test]
#[ignore = "deep: real servers"]
fn monitors_sleep_at_least_the_minimum_between_checks() {
    let Some(mongod) = standalone() else { return };
    let failing = mongod.fail_command(any_hello().times(5).error_code(1234)).unwrap();
    let observer = observe(&mongod, "&serverSelectionTimeoutMS=60000&heartbeatFrequencyMS=120000");
    block_on(observer.topology.select(&Criteria::write())).unwrap();
    let (_, mark) = observer.wait_for("the check that succeeds", 0, succeeded);
    let events = &observer.events()[..mark];
    let failed = |kind: &EventKind| matches!(kind, EventKind::ServerHeartbeatFailed { .. });
    assert_eq!(count(events, failed), 5);
    let starts: Vec<_> = events
        .iter()
        .filter(|event| started(&event.kind).is_some())
        .map(|event| event.at)
        .collect();
    for pair in starts.windows(2) {
        let pause = pair[1].since(pair[0]);
        assert!(pause >= HEARTBEAT, "{pause:?} from check to check");
    }
    let all = starts[5].since(starts[0]);
    // Without a waiting selection, even the second check would begin later than this.
    assert!(all < Duration::from_secs(120), "{all:?}");
    failing.disable().unwrap();
    observer.finish();
}

/// An observation by the server, timed by the clock of the client's runtime.
#[derive(Clone, Copy, Debug)]
struct Seen {
    connected: Instant,
    greeted: Instant,
}

/// Reads a hello from each connection and closes the connection, until a client sends no hello or
/// the receiver is dropped.
fn serve(listener: &TcpListener, clock: &Arc<dyn Clock>, seen: &mpsc::Sender<Seen>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let connected = clock.now();
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut rest = vec![0; u32::from_le_bytes(length) as usize - length.len()];
        stream.read_exact(&mut rest).unwrap();
        let greeted = clock.now();
        drop(stream);
        if seen.send(Seen { connected, greeted }).is_err() {
            return;
        }
    }
}

/// J-10, J-30, F-6, F-50: the heartbeat has started before the server sees a connection, and fails
/// after the server has read the hello and dropped the connection.
#[test]
#[ignore = "deep: real servers"]
fn heartbeat_1_started_connected_hello_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let host = Host::start();
    let (clock, (sender, seen)) = (host.runtime.backend.clock.clone(), mpsc::channel());
    let server = thread::spawn(move || serve(&listener, &clock, &sender));
    let observer = Observer::start_on(
        host,
        &format!("mongodb://{address}/?directConnection=true&heartbeatFrequencyMS=60000"),
    );
    let ((), started) = observer.wait_for("a check to start", 0, |kind| {
        matches!(kind, EventKind::ServerHeartbeatStarted(_)).then_some(())
    });
    let (duration, failed) = observer.wait_for("the check to fail", started, |kind| match kind {
        EventKind::ServerHeartbeatFailed { duration, .. } => Some(*duration),
        _ => None,
    });
    let events = observer.events();
    let (started, failed) = (events[started - 1].at, events[failed - 1].at);
    let seen_first = seen.recv().unwrap();
    let Seen { connected, greeted } = seen_first;
    assert!(started <= connected, "{started:?} {connected:?}");
    assert!(connected <= greeted && greeted <= failed, "{greeted:?} {failed:?}");
    assert!(duration <= failed.since(started));
    observer.finish();
    // A connection that is closed without sending a hello makes the server stop.
    drop(std::net::TcpStream::connect(address).unwrap());
    server.join().unwrap();
}
