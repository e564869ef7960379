//! Runs scripted measurements of one server in virtual time.

use std::{format, string::String, vec::Vec};

use super::*;
use crate::{
    hello::{Handshake, HelloRequest},
    options::Options,
};

#[derive(Clone, Debug)]
enum Say {
    Connected,
    /// A reply: true for success, false for an error.
    Reply(bool),
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

/// Runs the script. Each step passes an input at a time in milliseconds, and expects the given
/// outputs, followed by `|` and the deadline in milliseconds.
#[track_caller]
fn check(script: &[(u64, Say, &str)]) {
    let mut ping = pings();
    let mut asked = Instant::EPOCH;
    let hello = Hello { hello_ok: true, ..Hello::default() };
    for (index, (at, say, expected)) in script.iter().enumerate() {
        let now = Instant::from_millis(*at);
        let mut out = Outputs::default();
        let mut words: Vec<String> = Vec::new();
        match say {
            Say::Connected => ping.connected(now, &mut out),
            Say::Reply(is_ok) => {
                let hello = is_ok.then_some(&hello);
                let sample = ping.reply(now, Trip::new(asked, now, now), hello, &mut out);
                words.extend(sample.map(|sample| format!("sample {}", sample.as_millis())));
            }
            Say::Failed => ping.failed(now, &mut out),
            Say::Due => ping.due(now, &mut out),
        }
        for output in out {
            if let Output::Connect { deadline, .. } | Output::Send { deadline, .. } = &output {
                assert_eq!(*deadline, ping.deadline());
                asked = now;
            }
            words.push(match output {
                Output::Connect { .. } => "connect".into(),
                Output::Send { request, .. } => describe(&request),
                Output::Disconnect { .. } => "disconnect".into(),
                other => panic!("measurements do not cause {other:?}"),
            });
        }
        let deadline = ping.deadline().unwrap().since(Instant::EPOCH).as_millis();
        let actual = format!("{} | {deadline}", words.join(", "));
        assert_eq!(actual.trim_start(), *expected, "step {index}, at {at}: {say:?}");
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
    // The handshake yields the first sample, which excludes the time to connect (G-7, G-13, G-16).
    check(&[
        (0, Say::Due, "connect | 10000"),
        (50, Say::Connected, "isMaster handshake | 10050"),
        (53, Say::Reply(true), "sample 3 | 10053"),
        (10_052, Say::Due, "| 10053"),
        (10_053, Say::Due, "hello | 20053"),
        (10_057, Say::Reply(true), "sample 4 | 20057"),
        (20_057, Say::Due, "hello | 30057"),
    ]);
}

#[test]
fn an_error_closes_the_connection_and_waits_a_heartbeat() {
    // A new connection negotiates again (G-11, G-13).
    let begin = [
        (0, Say::Due, "connect | 10000"),
        (0, Say::Connected, "isMaster handshake | 10000"),
        (0, Say::Reply(true), "sample 0 | 10000"),
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
    run(Say::Reply(false));
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
    // The time between a reply's arrival and its processing is not part of the sample (G-7, G-11).
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
