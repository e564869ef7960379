//! Runs scripts that drive the checks of one server in virtual time.

use std::{
    fmt::Write as _,
    format,
    string::{String, ToString},
    sync::Arc,
    time::Duration,
    vec::Vec,
};

use bson::{Document, doc, oid::ObjectId};

pub(super) use super::super::*;
pub(super) use crate::{address::ServerAddress, hello::Hello, ids::ServerId, time::Instant};
use crate::{
    deployment::{Output, Outputs},
    error::{Error, ErrorKind, Stage},
    event::{EventKind, Heartbeat},
    hello::{HelloReply, HelloRequest},
};

/// An input of the script.
#[derive(Clone, Debug)]
pub(super) enum Say {
    Start,
    Connected,
    Reply {
        document: Document,
        more: bool,
    },
    Bytes(Vec<u8>),
    Failed(ErrorKind),
    Due,
    Request,
    /// An error from an operation has made the server Unknown.
    Cancel,
    Disconnected,
}

/// Returns the options of a client that runs outside any FaaS platform. The heartbeat interval and
/// the connect timeout are 10 seconds.
pub(super) fn options() -> Options {
    Options::new(Vec::new())
}

pub(super) fn config(options: &Options) -> MonitorConfig {
    MonitorConfig::new(options, Arc::new(Handshake::new([])), false)
}

pub(super) fn polling() -> MonitorConfig {
    let mut options = options();
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    config(&options)
}

pub(super) fn streaming() -> MonitorConfig {
    config(&options())
}

/// Returns the reply of a server that supports hello but not streaming.
pub(super) fn old() -> Document {
    doc! { "ok": 1, "maxWireVersion": 8, "helloOk": true, "connectionId": 42 }
}

/// Returns a reply that supports streaming, from the first server process, with the given counter
/// in its topology version.
pub(super) fn new(counter: i64) -> Document {
    new_process(0x11, counter)
}

/// Returns a reply that supports streaming, from the given server process, with the given counter
/// in its topology version.
pub(super) fn new_process(process: u8, counter: i64) -> Document {
    let process = ObjectId::from_bytes([process; 12]);
    let mut reply = old();
    reply.insert("topologyVersion", doc! { "processId": process, "counter": counter });
    reply
}

/// Returns an error reply.
pub(super) fn refusal() -> Document {
    doc! { "ok": 0, "code": 91, "errmsg": "shutting down" }
}

pub(super) fn says(document: Document) -> Say {
    Say::Reply { document, more: false }
}

pub(super) fn streams(document: Document) -> Say {
    Say::Reply { document, more: true }
}

pub(super) fn encode(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

/// Creates the checks of a server; the first one is due.
pub(super) fn checks(config: MonitorConfig) -> Check {
    let address = ServerAddress::new("db.lan", 27017);
    Check::new(Arc::new(config), ServerId::from_u64(1), address)
}

/// Runs the script. Each step consists of a time in milliseconds, an input, and the expected
/// outputs in order, followed by `|` and the deadline in milliseconds.
#[track_caller]
pub(super) fn check(config: MonitorConfig, script: &[(u64, Say, &str)]) {
    let mut check = checks(config);
    let mut known = false;
    let mut asked = Instant::EPOCH;
    for (index, (at, say, expected)) in script.iter().enumerate() {
        let now = Instant::from_millis(*at);
        let was_streaming = check.streaming;
        let mut out = Outputs::default();
        let report = pass(&mut check, now, (known, asked), say, &mut out);
        let is_request =
            |output: &Output| matches!(output, Output::Send { .. } | Output::Read { .. });
        if out.iter().any(is_request) {
            asked = now;
        }
        match &report {
            Some((_, outcome)) => known = outcome.is_ok(),
            None => known &= !matches!(say, Say::Cancel),
        }
        let said = match say {
            Say::Reply { document, .. } => encode(document),
            _ => Vec::new(),
        };
        let mut words = describe(out, report, check.deadline(), &said);
        match (was_streaming, check.streaming) {
            (false, true) => words.insert(0, "start rtt".into()),
            (true, false) => words.insert(0, "stop rtt".into()),
            _ => {}
        }
        let deadline = check
            .deadline()
            .map_or("never".to_string(), |at| millis(at.since(Instant::EPOCH)).to_string());
        let actual = format!("{} | {deadline}", words.join(", "));
        let actual = actual.trim_start();
        assert_eq!(actual, *expected, "step {index}, at {at}: {say:?}");
    }
}

/// Passes an input to the checks of a server. `asked` is the time of the last request.
fn pass(
    check: &mut Check,
    now: Instant,
    (known, asked): (bool, Instant),
    say: &Say,
    out: &mut Outputs,
) -> Option<(Option<Duration>, CheckOutcome)> {
    let awaited = check.awaits(check.conn());
    let is_awaited = match say {
        Say::Connected => awaited == Some(Waiting::Connection),
        Say::Reply { .. } | Say::Bytes(_) => awaited == Some(Waiting::Reply),
        Say::Failed(_) => awaited.is_some(),
        _ => true,
    };
    if !is_awaited {
        return None;
    }
    let mut reply = |bytes: Vec<u8>, more_to_come| {
        let trip = Trip::new(asked, now, now);
        let sample = check.sample(trip);
        let outcome = check.reply(now, known, trip, HelloReply::parse(bytes), more_to_come, out)?;
        Some((sample.filter(|_| outcome.is_ok()), outcome))
    };
    match say {
        Say::Reply { document, more } => return reply(encode(document), *more),
        Say::Bytes(bytes) => return reply(bytes.clone(), false),
        Say::Failed(kind) => {
            let error = Error::new(*kind, Stage::Connect, "scripted");
            return Some((None, check.failed(now, known, now, error, out)?));
        }
        Say::Start | Say::Due => return Some((None, check.due(now, known, out)?)),
        Say::Request => {
            check.request(now);
            check.proceed(now, out);
        }
        Say::Connected => check.connected(now, out),
        Say::Cancel => check.cancel(now, false, out),
        Say::Disconnected => check.connection_lost(),
    }
    None
}

/// Returns the outputs as a string: the sample comes first, and the report after the end of the
/// heartbeat.
fn describe(
    out: Outputs,
    mut report: Option<(Option<Duration>, CheckOutcome)>,
    deadline: Option<Instant>,
    said: &[u8],
) -> Vec<String> {
    let sample = report.as_ref().and_then(|(sample, _)| *sample);
    let mut words = Vec::from_iter(sample.map(|sample| format!("sample {}", millis(sample))));
    for output in out {
        if let Output::Connect { deadline: own, .. }
        | Output::Send { deadline: own, .. }
        | Output::Read { deadline: own, .. } = &output
        {
            assert_eq!(*own, deadline, "the deadline of the output is the machine's");
        }
        let is_event = matches!(output, Output::Emit(_));
        words.push(match output {
            Output::Connect { .. } => "connect".into(),
            Output::Send { request, .. } => describe_request(&request),
            Output::Read { .. } => "read".into(),
            Output::Disconnect { .. } => "disconnect".into(),
            Output::Emit(event) => describe_event(event, said),
            other => panic!("checks do not cause {other:?}"),
        });
        if is_event && let Some((_, outcome)) = report.take() {
            words.push(match outcome {
                Ok(hello) => format!("report {}", hello.server_type),
                Err(error) => format!("report {:?}", error.kind()),
            });
        }
    }
    words
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
fn describe_event(event: EventKind, said: &[u8]) -> String {
    let check = |heartbeat: &Heartbeat| {
        assert_eq!(heartbeat.server, ServerId::from_u64(1));
        assert_eq!(heartbeat.address.to_string(), "db.lan:27017");
        let server = match heartbeat.connection.server {
            Some(server) => format!("/{server}"),
            None => String::new(),
        };
        let awaited = if heartbeat.awaited { " awaited" } else { "" };
        format!("#{}{server}{awaited}", heartbeat.connection.driver)
    };
    match event {
        EventKind::ServerHeartbeatStarted(heartbeat) => {
            format!("started {}", check(&heartbeat))
        }
        EventKind::ServerHeartbeatSucceeded { heartbeat, duration, reply } => {
            assert_eq!(&*reply, said, "the reply itself is published");
            let duration = millis(duration);
            format!("succeeded {} after {duration}", check(&heartbeat))
        }
        EventKind::ServerHeartbeatFailed { heartbeat, duration, failure } => {
            let duration = millis(duration);
            let kind = failure.kind();
            format!("failed {} after {duration}: {kind:?}", check(&heartbeat))
        }
        other => panic!("a monitor does not publish {other:?}"),
    }
}

fn millis(duration: Duration) -> u128 {
    duration.as_millis()
}
