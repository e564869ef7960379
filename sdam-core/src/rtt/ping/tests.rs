//! Runs the measurements of one server by scripts in virtual time.

use std::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use bson::{Document, doc};

use super::*;
use crate::{
    hello::{Handshake, HelloRequest},
    options::Options,
};

#[derive(Clone, Debug)]
enum Say {
    Connected,
    Reply(Document),
    Failed,
    Due,
}

/// Returns the measurements of a server; the first one is due.
fn pings() -> Ping {
    let options = Options::new(Vec::new());
    let config = MonitorConfig::new(&options, Arc::new(Handshake::new([])), false);
    let mut ping = Ping::new(Arc::new(config), (ServerId::from_u64(1), Role::Ping), Duration::ZERO);
    ping.start(Instant::EPOCH);
    ping
}

fn ok() -> Say {
    Say::Reply(doc! { "ok": 1, "helloOk": true, "maxWireVersion": 17 })
}

/// Runs the script: at each time in milliseconds, passes the input and expects these outputs, then
/// `|` and the deadline in milliseconds.
#[track_caller]
fn check(script: &[(u64, Say, &str)]) {
    let mut ping = pings();
    let mut asked = Instant::EPOCH;
    for (index, (at, say, expected)) in script.iter().enumerate() {
        let now = Instant::from_millis(*at);
        let awaited = ping.awaits(ping.conn());
        let mut out = Outputs::default();
        let mut words: Vec<String> = Vec::new();
        match say {
            Say::Connected if awaited == Some(Waiting::Connection) => {
                ping.connected(now, &mut out);
            }
            Say::Reply(document) if awaited == Some(Waiting::Reply) => {
                let hello = Hello::parse(&document.to_vec().unwrap());
                let trip = Trip::new(asked, now, now);
                let sample = ping.reply(now, trip, hello.as_ref().ok(), &mut out);
                words.extend(sample.map(|sample| format!("sample {}", sample.as_millis())));
            }
            Say::Failed if awaited.is_some() => ping.failed(now, &mut out),
            Say::Due => ping.due(now, &mut out),
            Say::Connected | Say::Reply(_) | Say::Failed => {}
        }
        for output in out {
            words.push(match output {
                Output::Connect { deadline, .. } => {
                    assert_eq!(deadline, ping.deadline());
                    "connect".into()
                }
                Output::Send { request, deadline, .. } => {
                    assert_eq!(deadline, ping.deadline());
                    asked = now;
                    describe(&request)
                }
                Output::Disconnect { .. } => "disconnect".into(),
                other => panic!("measurements do not cause {other:?}"),
            });
        }
        let deadline = ping.deadline().map_or("never".to_string(), |deadline| {
            deadline.since(Instant::EPOCH).as_millis().to_string()
        });
        let actual = format!("{} | {deadline}", words.join(", "));
        let actual = actual.trim_start();
        assert_eq!(actual, *expected, "step {index}, at {at}: {say:?}");
    }
}

fn describe(request: &HelloRequest) -> String {
    assert_eq!(request.awaiting, None);
    assert!(!request.exhaust_allowed);
    let first = if request.handshake.is_some() { " handshake" } else { "" };
    format!("{}{first}", request.command_name())
}

#[test]
fn hello_is_measured_once_per_heartbeat_on_one_connection() {
    // The handshake gives the first sample, without the time to connect (G-7, G-13, G-16).
    check(&[
        (0, Say::Due, "connect | 10000"),
        (50, Say::Connected, "isMaster handshake | 10050"),
        (53, ok(), "sample 3 | 10053"),
        (10_052, Say::Due, "| 10053"),
        (10_053, Say::Due, "hello | 20053"),
        (10_057, ok(), "sample 4 | 20057"),
        (20_057, Say::Due, "hello | 30057"),
    ]);
}

#[test]
fn an_error_closes_the_connection_and_waits_a_heartbeat() {
    // A new connection negotiates again (G-11, G-13).
    let begin = [
        (0, Say::Due, "connect | 10000"),
        (0, Say::Connected, "isMaster handshake | 10000"),
        (0, ok(), "sample 0 | 10000"),
        (10_000, Say::Due, "hello | 20000"),
    ];
    let again = [
        (20_001, Say::Due, "connect | 30001"),
        (20_001, Say::Connected, "isMaster handshake | 30001"),
    ];
    let run = |error| {
        let error = [(10_001, error, "disconnect | 20001")];
        check(&[&begin[..], &error, &again].concat());
    };
    run(Say::Failed);
    run(Say::Reply(doc! { "ok": 0, "errmsg": "no" }));
    let late = [
        (20_000, Say::Due, "disconnect | 30000"),
        (30_000, Say::Due, "connect | 40000"),
        (40_000, Say::Due, "disconnect | 50000"),
        (50_000, Say::Due, "connect | 60000"),
        (50_001, Say::Failed, "disconnect | 60001"),
    ];
    check(&[&begin[..], &late].concat());
}

#[test]
fn the_sample_is_the_time_on_the_wire_whenever_the_reply_is_processed() {
    // The time between the reply's arrival and its processing does not count (G-7, G-11).
    let at = Instant::from_millis;
    let check = |sent, arrived, processed, sample: Option<u64>| {
        let mut ping = pings();
        let mut out = Outputs::default();
        ping.due(at(0), &mut out);
        ping.connected(at(0), &mut out);
        let trip = Trip::new(at(sent), at(arrived), at(processed));
        let hello = Hello::default();
        let found = ping.reply(at(processed), trip, Some(&hello), &mut out);
        assert_eq!(found, sample.map(Duration::from_millis));
    };
    check(5, 25, 25, Some(20));
    check(5, 25, 9_000, Some(20));
    // Both replies are processed after the deadline of 10 s; only the second arrives after it.
    check(5, 25, 11_000, Some(20));
    check(5, 10_001, 11_000, None);
    // Instants are clamped: a reply arrives after its request and before it is processed.
    check(30, 25, 40, Some(0));
    check(5, 50, 40, Some(35));
}
